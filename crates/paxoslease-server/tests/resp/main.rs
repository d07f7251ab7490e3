//! What clients that speak RESP are promised, over real sockets and with a real cell of three.

mod clients;
mod commands;
mod errors;
mod hand_over;
mod leaving;
mod limits;
mod listing;
mod order;
mod support;
mod waiting;
mod watching;
