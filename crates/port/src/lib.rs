//! Moves frames: trait Port and one file per backend.
