//! Learned admission: items that are likely to be read again and not updated go to flash (sections 3.2 and 4.2).
//!
//! ```text
//!   requests ──read, updated──▶ Learner: outcomes of some keys ──every window──▶ a classifier for each application
//!   CLOCK hand ──judge────────▶ Learner ──▶ Verdict; refused items that have been read lately stay in memory
//! ```

pub mod flashiness;
mod kind;
mod learner;
pub mod svm;
mod worth;

pub use kind::ADMISSIONS;
pub use worth::Learning;
