//! What the bytes promise: round trips, sizes, pinned encodings, and calm under garbage.

mod frames;
mod hello;
mod hostile;
mod resp;
mod samples;
mod stable;
