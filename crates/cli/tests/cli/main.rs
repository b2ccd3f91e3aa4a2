//! The program as its users see it: each test starts `drophammer`, and reads its output and the files that it leaves.

mod common;

mod bgp;
mod blast;
mod by_hand;
mod closed_pipes;
mod command;
mod detach;
mod documented;
mod examples;
mod guides;
mod hostile;
mod hosts;
mod includes;
mod keys;
mod layering;
mod listen;
mod live;
mod live_page;
mod manual;
mod neighbour;
mod output;
mod own_interfaces;
mod planning;
mod prompt;
mod python;
mod resume;
mod routes_on_hosts;
mod same_on_hosts;
mod serve;
mod serve_devices;
mod serve_frames;
mod serve_runs;
mod some_duts;
