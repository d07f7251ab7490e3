//! Tests of the encodings: round trips, sizes, pinned bytes and hostile input. That no input causes
//! a panic is checked by the fuzz targets.

mod frames;
mod hello;
mod membership;
mod resp;
mod samples;
mod stable;
mod table;
