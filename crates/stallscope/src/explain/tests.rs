//! The whole chain on invented machines.
