//! Helper tasks: `man`, `completions`.

fn main() {}
