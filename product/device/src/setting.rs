//! [`Setting`]: the settings that errors name as remedies.
//!
//! An error says `force` or `flash_size`, the names of this library's fields and methods. A program whose users type
//! other names puts them in with [`renamed`].

use std::fmt;

/// Setting that can mend a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Start empty, whatever the files hold.
    Force,
    /// Overwrite file systems and the like.
    OverwriteFilesystem,
    /// Bytes of flash.
    FlashSize,
    /// Device of the index.
    IndexFlash,
    /// Path of the journal.
    Journal,
    /// Bytes of the journal.
    JournalSize,
    /// Bytes of memory.
    Memory,
    /// Number of write buffers.
    Buffers,
}

impl Setting {
    /// Every setting.
    pub const ALL: [Self; 8] = [
        Self::Force,
        Self::OverwriteFilesystem,
        Self::FlashSize,
        Self::IndexFlash,
        Self::Journal,
        Self::JournalSize,
        Self::Memory,
        Self::Buffers,
    ];
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Force => "`force`",
            Self::OverwriteFilesystem => "`overwrite_filesystem`",
            Self::FlashSize => "`flash_size`",
            Self::IndexFlash => "`index_flash`",
            Self::Journal => "`journal`",
            Self::JournalSize => "`journal_size`",
            Self::Memory => "`memory`",
            Self::Buffers => "`buffers`",
        })
    }
}

/// Returns an error's message with the names that `name` gives the settings.
pub fn renamed(error: &dyn fmt::Display, name: impl Fn(Setting) -> &'static str) -> String {
    let rename = |text: String, setting: Setting| text.replace(&setting.to_string(), name(setting));
    Setting::ALL.into_iter().fold(error.to_string(), rename)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_16_a_program_puts_its_own_names_into_an_error() {
        let error = format!(
            "use {} or {}, twice {}",
            Setting::Force,
            Setting::JournalSize,
            Setting::Force
        );
        assert_eq!(error, "use `force` or `journal_size`, twice `force`");
        let name = |setting| match setting {
            Setting::Force => "--force",
            _ => "--other",
        };
        assert_eq!(
            renamed(&error, name),
            "use --force or --other, twice --force"
        );
    }
}
