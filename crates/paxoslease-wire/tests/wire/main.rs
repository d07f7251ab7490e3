//! Tests of the encodings: round trips, sizes, pinned bytes and hostile input.

mod frames;
mod hello;
mod hostile;
mod resp;
mod samples;
mod stable;
