//! Holds no code: `tests/imports` reads the sources of the other crates and fails where an arrow
//! points up, or where files import each other in a circle.
