//! Holds no code. `tests/imports` reads the sources of the other crates and fails if a dependency points up
//! or files import each other in a circle.

#![forbid(unsafe_code)]
