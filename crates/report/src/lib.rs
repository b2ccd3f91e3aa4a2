//! A stored run to one HTML file, text, Markdown, CSV, JSON and JUnit XML.
