//! One file per paper table or figure: `flowstone experiment`.
