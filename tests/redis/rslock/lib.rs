//! Tests of the crate `rslock` against a cell, or against Redis. See `tests/redis`.
