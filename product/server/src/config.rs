//! Settings: defaults, a TOML file, `--set section.key=value`, checked as a whole.
//!
//! An unknown key is an error that names it: a misspelt setting must not pass silently.

mod values;

use std::path::{Path, PathBuf};

use device::{FileJournal, NamedDevices, NamedFlash, WriteRate, is_same_file};
use engine::config::least_journal_bytes;
use engine::{AfterDowntime, Reserve};
use runtime::live::IoChoice;
use serde::Deserialize;
use serde::de;
use smart_default::SmartDefault;

pub use self::values::{ListenAddress, Seconds, Size};
use crate::flash::FlashSetting;
use crate::index_flash::IndexFlashSetting;

/// Most bits of the hash that choose a partition: journals are made for so many partitions.
pub(crate) const PARTITION_BITS: u32 = 6;
/// Bytes of the largest configuration file.
const MOST_FILE_BYTES: u64 = 1 << 20;
/// The longest write-back window, in seconds: a day.
const MOST_WRITE_BACK: Seconds = Seconds(86_400);

/// The default memory of the process, on a machine that has it.
pub(crate) const USUAL_MEMORY: Size = Size(256 << 20);
/// The default of the bound on connections.
const USUAL_CONNECTIONS: usize = 10_000;
/// The default of the largest value.
const USUAL_MAX_ITEM_SIZE: Size = Size(1 << 20);

/// All settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Settings of the network side.
    pub server: ServerSection,
    /// Settings of the cache.
    pub cache: CacheSection,
    /// Settings of the log.
    pub log: LogSection,
}

/// `[server]`
#[derive(Clone, Debug, Deserialize, SmartDefault)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a section, [server], of settings"
)]
pub struct ServerSection {
    /// Addresses to listen on: `HOST:PORT`, or `unix:PATH`.
    #[default(vec![ListenAddress::Tcp(([127, 0, 0, 1], 11211).into())])]
    pub listen: Vec<ListenAddress>,
    /// Permissions of unix sockets, as in `chmod`.
    #[default(0o700)]
    pub unix_mode: u32,
    /// Worker threads; 0 for one per core.
    pub threads: usize,
    /// Most connections at once; unset: 10,000, or fewer if memory or the limit on open files allows no more.
    pub max_connections: Option<usize>,
    /// Seconds after which a silent connection is closed; 0 for never.
    pub idle_timeout: Seconds,
    /// Whether clients may use `shutdown`.
    pub enable_shutdown: bool,
    /// Whether clients may use `flush_all`.
    #[default(true)]
    pub enable_flush_all: bool,
    /// Whether clients may use `flowstone sync`.
    #[default(true)]
    pub enable_sync: bool,
    /// Seconds an orderly stop may take.
    #[default(Seconds(60))]
    pub stop_deadline: Seconds,
    /// Method by which the workers wait for I/O.
    #[serde(with = "IoSetting")]
    pub io: IoChoice,
}

/// Names of the I/O methods in settings.
#[derive(Deserialize)]
#[serde(remote = "IoChoice", rename_all = "kebab-case")]
enum IoSetting {
    Auto,
    IoUring,
    Fallback,
}

/// `[cache]`
#[derive(Clone, Debug, Deserialize, SmartDefault)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a section, [cache], of settings"
)]
pub struct CacheSection {
    /// Memory of the whole process; unset: 256 MiB, or less in a small memory cgroup.
    pub memory: Option<Size>,
    /// File, block device or device of the program.
    #[default(FlashSetting::Path("./flowstone.flash".into()))]
    pub flash: FlashSetting,
    /// Bytes of the flash; unset: those of an existing image, the size of a block device, or 4 GiB.
    pub flash_size: Option<Size>,
    /// File, block device or device of the program for the part of the index that is on flash; unset: a part of the flash.
    pub index_flash: Option<IndexFlashSetting>,
    /// Bytes of a new device; unset: as many as the index needs.
    pub index_flash_size: Option<Size>,
    /// Most bytes written to the flash in a second; unset: no limit.
    #[serde(deserialize_with = "write_rate")]
    pub flash_write_limit: Option<WriteRate>,
    /// The preset, which determines the settings that are unset below.
    #[default("flowstone")]
    pub preset: String,
    /// Largest value; unset: 1 MiB, or half an erase block if that is less.
    pub max_item_size: Option<Size>,
    /// Segment size of a new image; unset: chosen by the sizes of flash and memory.
    pub segment_size: Option<Size>,
    /// Segments in memory at once.
    pub segment_buffers: Option<usize>,
    /// Largest share of the memory that the index may take, in percent.
    pub index_percent: Option<u32>,
    /// For a tiered index: share of its mappings that its first tier holds in memory, in percent. For an index without
    /// keys: share of the items on flash that may be kept when their segments are reclaimed.
    pub hot_percent: Option<u32>,
    /// For a tiered index: bits of memory for each of the other mappings, for filters.
    pub filter_bits: Option<u32>,
    /// For an index of slices: number k of incarnations. Its memory falls as 1/k, the bytes written for an item rise as k.
    pub incarnations: Option<u32>,
    /// For an index of slices: share of its memory for filters of the partitions that are read most, in percent.
    pub filter_percent: Option<u32>,
    /// Policy that chooses the items that go to flash when they leave memory; unset: the preset's.
    pub admission: Option<String>,
    /// For learned admission: seconds of a window of sampling, and of the window of counting after it.
    pub admission_window: Option<u32>,
    /// For learned admission: hits that 100 writes to flash have to bring.
    pub admission_hits_per_100_writes: Option<u32>,
    /// For learned admission: whether refused items are remembered for a while, and go on counting when they come back.
    pub admission_remembers: Option<bool>,
    /// For learned admission: the character that ends the part of a key which names its application; empty for one
    /// application.
    #[serde(deserialize_with = "delimiter")]
    pub application_delimiter: Option<Delimiter>,
    /// Largest part of a reclaimed segment that is kept by copying, in sixteenths.
    pub max_copy_sixteenths: Option<u32>,
    /// Policy for the number of free segments.
    #[serde(deserialize_with = "reserve")]
    pub reserve: Option<Reserve>,
    /// With a static reserve: share of free segments, in percent, below which reclaim is urgent.
    pub low_watermark: Option<u32>,
    /// With a static reserve: share of free segments, in percent, below which reclaim begins.
    pub high_watermark: Option<u32>,
    /// Tell the device of erased segments (hole punching, TRIM).
    pub discard: bool,
    /// Reserve a new file's space at once.
    #[default(true)]
    pub preallocate: bool,
    /// Overwrite the contents of the flash: an old image, or unknown bytes.
    pub force: bool,
    /// Overwrite also a file system, a volume or a partition table.
    pub overwrite_filesystem: bool,
    /// The journal; unset: beside the flash.
    pub journal: Option<PathBuf>,
    /// Bytes of a new journal; unset: chosen by the sizes of flash and memory.
    pub journal_size: Option<Size>,
    /// Seconds after which an item that only memory holds is written to flash, too; 0 to write it only when it leaves
    /// memory. Unset: by the preset.
    pub write_back: Option<Seconds>,
    /// Longest time that a write waits for space on flash before it is refused.
    #[default(Seconds(10))]
    pub write_patience: Seconds,
    /// Milliseconds after which journal records are synced.
    #[default(100)]
    pub journal_sync_ms: u32,
    /// Seconds of downtime after which the items are not trusted any more; 0 for never.
    pub max_downtime: Seconds,
    /// Treatment of the items after a longer downtime.
    #[serde(with = "DowntimeSetting")]
    pub after_downtime: AfterDowntime,
}

fn reserve<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Reserve>, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map(Some).map_err(de::Error::custom)
}

/// Separator behind the part of a key that names its application; unset if all keys are of one application.
pub type Delimiter = Option<u8>;

fn delimiter<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Delimiter>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.as_bytes() {
        [] => Ok(Some(None)),
        [byte] if byte.is_ascii_graphic() => Ok(Some(Some(*byte))),
        _ => Err(de::Error::custom(format!(
            "`{text}` is no delimiter; write one character that keys may have, as \":\", or \"\" for one application"
        ))),
    }
}

fn write_rate<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<WriteRate>, D::Error> {
    let rate = match WrittenRate::deserialize(deserializer)? {
        WrittenRate::Bytes(bytes) => bytes.to_string().parse(),
        WrittenRate::Text(text) => text.parse(),
        WrittenRate::Other(_) => {
            let text = "write it as \"20MiB\" a second, or \"600TB/5y\"";
            return Err(de::Error::custom(text));
        }
    };
    rate.map(Some).map_err(de::Error::custom)
}

/// The two notations of a [`WriteRate`].
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenRate {
    Bytes(i64),
    Text(String),
    Other(de::IgnoredAny),
}

/// Names in settings for the treatment of items after too long a downtime.
#[derive(Deserialize)]
#[serde(remote = "AfterDowntime", rename_all = "kebab-case")]
enum DowntimeSetting {
    Empty,
    Stale,
}

/// `[log]`
#[derive(Clone, Debug, Deserialize, SmartDefault)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "a section, [log], of settings"
)]
pub struct LogSection {
    /// `error warn info debug trace`, or a filter by module.
    #[default("info")]
    pub level: String,
    /// `text` or `json`.
    pub format: LogFormat,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// An error in the settings, in one line: the file, `--set` or setting, and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{of}: {what}")]
pub struct ConfigError {
    of: String,
    what: String,
}

impl ConfigError {
    fn new(of: impl ToString, what: impl ToString) -> Self {
        Self {
            of: of.to_string(),
            what: what.to_string(),
        }
    }
}

impl Config {
    /// Loads the settings of `file`, if any, and applies `overrides` (`section.key=value`) to them.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load(file: Option<&Path>, overrides: &[String]) -> Result<Self, ConfigError> {
        let mut table = match file {
            None => toml::Table::new(),
            Some(path) => {
                let whence = path.display().to_string();
                let text = read(path)?;
                // Parsed into settings first: only here does an error know its line.
                toml::from_str::<Self>(&text)
                    .map_err(|error| content(&whence, &error, Some(&text)))?;
                text.parse()
                    .map_err(|error| content(&whence, &error, Some(&text)))?
            }
        };
        for assignment in overrides {
            apply(&mut table, assignment)?;
        }
        table
            .try_into()
            .map_err(|error| content(&format!("--set {}", overrides.join(" ")), &error, None))
    }

    /// Looks for the devices of the program that `cache.flash` and `cache.index_flash` name. To be called before the server
    /// runs; without it, both are paths.
    ///
    /// # Errors
    /// If a text is of a device and cannot be understood.
    pub fn name_devices(&mut self, devices: &dyn NamedDevices) -> Result<(), ConfigError> {
        let cache = &mut self.cache;
        let refused = |name: &str| {
            let name = name.to_owned();
            move |error| ConfigError::new(name, error)
        };
        let named = cache.flash.name(devices);
        named.map_err(refused("--flash (cache.flash)"))?;
        if let Some(index) = &mut cache.index_flash {
            let named = index.name(devices);
            named.map_err(refused("--index-flash (cache.index_flash)"))?;
        }
        Ok(())
    }

    /// Returns the memory of the whole process.
    pub(crate) fn memory(&self) -> Size {
        self.cache.memory.unwrap_or(USUAL_MEMORY)
    }

    /// Returns the bound on connections that the settings ask for.
    pub(crate) fn max_connections(&self) -> usize {
        self.server.max_connections.unwrap_or(USUAL_CONNECTIONS)
    }

    /// Checks the settings beyond their types: refuses the first setting that cannot work.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let refuse = |name: &str, what: &str| Err(ConfigError::new(name, what));
        if let FlashSetting::Named(device) = &self.cache.flash {
            self.check_named(device.as_ref())?;
        }
        if self.server.listen.is_empty() {
            return refuse("--listen (server.listen)", "nothing to listen on");
        }
        if self.server.unix_mode > 0o777 {
            let what = "permissions are octal digits after 0o, as 0o700, up to 0o777";
            return refuse("server.unix_mode", what);
        }
        if !(1..=1_000_000).contains(&self.max_connections()) {
            let name = "--max-connections (server.max_connections)";
            return refuse(name, "must be 1 to 1000000");
        }
        if self.server.threads > 1024 {
            return refuse("--threads (server.threads)", "must be at most 1024");
        }
        if !(1024..=64 << 20).contains(&self.max_item_size().0) {
            let name = "--max-item-size (cache.max_item_size)";
            return refuse(name, "must be 1KiB to 64MiB");
        }
        if let Some(size) = self.cache.segment_size
            && (!size.0.is_power_of_two() || !(64 << 10..=1 << 30).contains(&size.0))
        {
            let what = "must be a power of two from 64KiB to 1GiB";
            return refuse("cache.segment_size", what);
        }
        let least = Size(least_journal_bytes(PARTITION_BITS));
        if self.cache.journal_size.is_some_and(|size| size < least) {
            let what = format!("must be at least {least}");
            return refuse("cache.journal_size", &what);
        }
        let is_empty = |path: &PathBuf| path.as_os_str().is_empty();
        if self.cache.journal.as_ref().is_some_and(is_empty) {
            let what = "is empty: name a file, or leave it out for the one beside the flash";
            return refuse("cache.journal", what);
        }
        if let (Some(journal), Some(flash)) = (&self.cache.journal, self.cache.flash.path())
            && is_same_file(journal, flash)
        {
            return refuse("cache.journal", "must be another file than the flash");
        }
        self.check_index_flash()?;
        if self.server.stop_deadline.0 == 0 {
            return refuse("server.stop_deadline", "must be at least 1 second");
        }
        if self.cache.write_patience.0 == 0 {
            return refuse("cache.write_patience", "must be at least 1 second");
        }
        if !(1..=60_000).contains(&self.cache.journal_sync_ms) {
            return refuse("cache.journal_sync_ms", "must be 1 to 60000");
        }
        if self
            .cache
            .write_back
            .is_some_and(|window| window > MOST_WRITE_BACK)
        {
            return refuse("cache.write_back", "must be 0 (off) to 86400 seconds");
        }
        Ok(())
    }

    /// Checks that the device of the index goes with that of the flash.
    fn check_index_flash(&self) -> Result<(), ConfigError> {
        let cache = &self.cache;
        let (option, size) = (
            "--index-flash (cache.index_flash)",
            "cache.index_flash_size",
        );
        let Some(index) = &cache.index_flash else {
            return match cache.index_flash_size {
                Some(_) => Err(ConfigError::new(
                    size,
                    "is of --index-flash; give that, too",
                )),
                None => Ok(()),
            };
        };
        let (flash, path) = (cache.flash.path(), index.path());
        if path.is_none() && cache.index_flash_size.is_some() {
            let what =
                format!("the size of an emulated device is part of its name: {index},size=S");
            return Err(ConfigError::new(size, what));
        }
        let meta = cache.flash.image();
        let beside = || flash.map(FileJournal::path_beside);
        let journal = cache.journal.clone().or_else(beside);
        let others = [flash, Some(&*meta), journal.as_deref()];
        let what = match (flash, path) {
            (Some(_), None) => {
                "an emulated device of the index is in memory, and the flash is not: it could not be opened again"
            }
            (None, Some(_)) => {
                "the flash is in memory, and the device of its index must be, too: name an emulated one"
            }
            (Some(_), Some(path))
                if others
                    .iter()
                    .flatten()
                    .any(|other| is_same_file(path, other)) =>
            {
                "must be another file than the flash and its journal"
            }
            _ => return Ok(()),
        };
        Err(ConfigError::new(option, what))
    }

    /// Refuses settings that a device of the program determines.
    fn check_named(&self, device: &dyn NamedFlash) -> Result<(), ConfigError> {
        let cache = &self.cache;
        let (name, what) = if cache.flash_size.is_some() {
            let what =
                format!("the size of an emulated device is part of --flash: {device},size=S");
            ("--flash-size (cache.flash_size)", what)
        } else if cache.segment_size.is_some() && device.blocks().is_some() {
            let what = "a segment is an erase block of the device; leave it out".to_owned();
            ("cache.segment_size", what)
        } else if cache.journal.is_some() && device.file().is_none() {
            let what = "the device is in memory, and its journal is too; leave it out".to_owned();
            ("cache.journal", what)
        } else {
            return Ok(());
        };
        Err(ConfigError::new(name, what))
    }

    /// Returns the size of the largest value.
    pub(crate) fn max_item_size(&self) -> Size {
        self.cache.max_item_size.unwrap_or(USUAL_MAX_ITEM_SIZE)
    }

    /// Returns the number of worker threads to start.
    pub(crate) fn threads(&self) -> usize {
        match self.server.threads {
            0 => runtime::process::cores(),
            threads => threads,
        }
    }
}

/// Reads a configuration file.
fn read(path: &Path) -> Result<String, ConfigError> {
    let refused = |what: &dyn ToString| ConfigError::new(path.display(), what.to_string());
    let found = std::fs::metadata(path).map_err(|error| refused(&error))?;
    if !found.is_file() || found.len() > MOST_FILE_BYTES {
        let what = "is no configuration file: name a regular file of at most 1 MiB (--config)";
        return Err(refused(&what));
    }
    std::fs::read_to_string(path).map_err(|error| refused(&error))
}

fn apply(table: &mut toml::Table, assignment: &str) -> Result<(), ConfigError> {
    let wrong = |what: &str| ConfigError::new(format!("--set {assignment}"), what);
    let (name, text) = assignment
        .split_once('=')
        .ok_or_else(|| wrong("write section.key=value"))?;
    let (section, key) = name
        .split_once('.')
        .ok_or_else(|| wrong("write section.key=value"))?;
    // A bare word is a string, so that sizes and paths need no quotes.
    let value = format!("value = {text}")
        .parse::<toml::Table>()
        .ok()
        .and_then(|mut parsed| parsed.remove("value"))
        .unwrap_or_else(|| toml::Value::String(text.to_owned()));
    table
        .entry(section)
        .or_insert_with(|| toml::Value::Table(toml::Table::new()))
        .as_table_mut()
        .ok_or_else(|| wrong("there is no such section"))?
        .insert(key.to_owned(), value);
    Ok(())
}

/// Turns a TOML error into one line, with line number and key if they are known.
fn content(whence: &str, error: &toml::de::Error, text: Option<&str>) -> ConfigError {
    let line = text.zip(error.span()).map(|(text, span)| {
        let line = 1 + text[..span.start.min(text.len())].matches('\n').count();
        format!("line {line}: ")
    });
    // Without the input, the error names the key instead of drawing the line.
    let mut error = error.clone();
    error.set_input(None);
    let message = error.to_string().trim_end().replace('\n', ", ");
    // The one list among the settings.
    let message = message.replace(
        "expected a sequence",
        "expected a list, as [\"127.0.0.1:11211\"]",
    );
    ConfigError::new(whence, line.unwrap_or_default() + &message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::tests::Texts;

    fn set(assignment: &str) -> Result<Config, ConfigError> {
        Config::load(None, &[assignment.to_owned()])
    }

    /// Returns the settings with the devices that they name, as far as they can work.
    fn checked(assignments: &[String]) -> Result<(), ConfigError> {
        let mut config = Config::load(None, assignments)?;
        config.name_devices(&Texts)?;
        config.check()
    }

    /// The error of a file with this text.
    fn wrong_in_file(text: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let error = Config::load(Some(file.path()), &[]).unwrap_err();
        let error = error.to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn overrides_win_and_need_no_quotes() {
        let set = ["cache.memory=64MiB", "server.threads=3"].map(str::to_owned);
        let config = Config::load(None, &set).unwrap();
        let (memory, threads) = (config.cache.memory, config.server.threads);
        assert_eq!((memory, threads), (Some(Size(64 << 20)), 3));
    }

    #[test]
    fn a_configuration_file_is_regular_and_small() {
        let large = tempfile::NamedTempFile::new().unwrap();
        large.as_file().set_len(MOST_FILE_BYTES + 1).unwrap();
        for path in [Path::new("/dev/zero"), Path::new("/"), large.path()] {
            let error = Config::load(Some(path), &[]).unwrap_err().to_string();
            assert!(error.contains("a regular file of at most 1 MiB"), "{error}");
        }
    }

    #[test]
    fn a_misspelt_key_is_named_with_its_line() {
        let error = wrong_in_file("[cache]\nmemory = \"64MiB\"\nmemroy = 1\n");
        let has_both = error.contains("line 3") && error.contains("memroy");
        assert!(has_both, "{error}");
        let error = set("cache.memroy=1").unwrap_err().to_string();
        assert!(error.contains("memroy"), "{error}");
    }

    #[test]
    fn a_value_of_the_wrong_type_is_named_with_its_key() {
        for (text, key, found) in [
            ("[cache]\nmemory = [1, 2]\n", "cache.memory", "sequence"),
            ("[cache]\nmemory = -1\n", "cache.memory", "-1"),
            ("[cache]\nflash_size = 1.5\n", "cache.flash_size", "1.5"),
            ("[cache]\nmemory = \"plenty\"\n", "cache.memory", "plenty"),
            ("[server]\nlisten = [7]\n", "server.listen", "7"),
            ("[server]\nthreads = \"all\"\n", "server.threads", "all"),
            ("[server]\nlisten = \"x\"\n", "server.listen", "a list, as"),
            ("\ncache = 5\n", "in `cache`", "a section, [cache]"),
        ] {
            let error = wrong_in_file(text);
            assert!(error.contains("line 2: "), "{error}");
            assert!(error.contains(key) && error.contains(found), "{error}");
        }
        let error = set("cache.memory=[1]").unwrap_err().to_string();
        assert!(error.contains("in `cache.memory`"), "{error}");
        assert!(error.contains("256MiB"), "{error}");
    }

    #[test]
    fn a_write_limit_is_bytes_a_second_or_a_lifetime() {
        let limit = |text: &str| {
            let config = set(&format!("cache.flash_write_limit={text}"))?;
            Ok::<_, ConfigError>(config.cache.flash_write_limit.map(|rate| rate.0.get()))
        };
        assert_eq!(limit("20MiB").unwrap(), Some(20 << 20));
        assert_eq!(limit("1000000").unwrap(), Some(1_000_000));
        assert_eq!(limit("600TB/5y").unwrap(), Some(3_802_570));
        let unset = Config::load(None, &[]).unwrap();
        assert_eq!(unset.cache.flash_write_limit, None);
        for wrong in ["0", "-1", "1.5", "true", "fast", "20MiB/0y", "[1]"] {
            let error = limit(wrong).unwrap_err().to_string();
            assert!(error.contains("flash_write_limit"), "{wrong}: {error}");
            assert!(!error.contains("untagged"), "{wrong}: {error}");
        }
        let error = wrong_in_file("[cache]\nflash_write_limit = 0\n");
        assert!(
            error.contains("line 2: ") && error.contains("64KiB"),
            "{error}"
        );
    }

    #[test]
    fn the_write_back_window_is_seconds_and_0_is_off() {
        let checked = |text: &str| {
            let config = set(&format!("cache.write_back={text}"))?;
            config.check()?;
            Ok::<_, ConfigError>(config.cache.write_back)
        };
        assert_eq!(Config::load(None, &[]).unwrap().cache.write_back, None);
        assert_eq!(checked("0").unwrap(), Some(Seconds(0)));
        for day in ["86400", "86400s", "1440m", "24h", "1d"] {
            assert_eq!(checked(day).unwrap(), Some(Seconds(86_400)));
        }
        for wrong in [
            "86401",
            "4294967295",
            "4294967296",
            "-1",
            "1.5",
            "soon",
            "60 seconds",
            "2d",
            "m",
            "71582789m",
        ] {
            let error = checked(wrong).unwrap_err().to_string();
            assert!(error.contains("cache.write_back"), "{wrong}: {error}");
        }
        let error = checked("86401").unwrap_err().to_string();
        assert!(error.contains("0 (off) to 86400"), "{error}");
    }

    #[test]
    fn a_stop_has_time() {
        let error = set("server.stop_deadline=0").unwrap().check().unwrap_err();
        assert!(
            error
                .to_string()
                .contains("server.stop_deadline: must be at least 1 second"),
            "{error}"
        );
    }

    #[test]
    fn permissions_without_0o_are_refused() {
        let checked = |mode: &str| set(&format!("server.unix_mode={mode}")).unwrap().check();
        assert!(checked("0o777").is_ok());
        for decimal in ["600", "660", "700", "777"] {
            let error = checked(decimal).unwrap_err().to_string();
            assert!(
                error.contains("server.unix_mode") && error.contains("0o700"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_flash_is_not_its_own_journal() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display();
        let folder = file.path().parent().unwrap().display();
        let name = file.path().file_name().unwrap().display();
        let link = tempfile::tempdir().unwrap();
        let link = link.path().join("link");
        std::fs::hard_link(file.path(), &link).unwrap();
        for journal in [
            format!("{path}"),
            format!("{folder}/./{name}"),
            link.display().to_string(),
        ] {
            let settings = [
                format!("cache.flash={path}"),
                format!("cache.journal={journal}"),
            ];
            let config = Config::load(None, &settings).unwrap();
            let error = config.check().unwrap_err().to_string();
            assert!(
                error.contains("must be another file than the flash"),
                "{error}"
            );
        }
        let settings = [
            format!("cache.flash={path}"),
            format!("cache.journal={path}.journal"),
        ];
        assert!(Config::load(None, &settings).unwrap().check().is_ok());
    }

    #[test]
    fn an_index_has_a_device_that_lasts_as_long_as_the_flash() {
        for (flash, index, more, says) in [
            ("x", "index", None, "in memory, and the flash is not"),
            (
                "blocks,file=x",
                "disk",
                None,
                "in memory, and the flash is not",
            ),
            ("blocks", "x", None, "emulated one"),
            ("x", "x", None, "another file"),
            ("x", "./x", None, "another file"),
            ("x", "x.journal", None, "another file"),
            ("blocks,file=x", "x.meta", None, "another file"),
            ("x", "y", Some("cache.journal=y"), "another file"),
            ("x", "y", None, ""),
            ("blocks,file=x", "y", None, ""),
            ("disk", "index", None, ""),
            (
                "disk",
                "index",
                Some("cache.index_flash_size=4MiB"),
                "part of its name",
            ),
        ] {
            let mut set = vec![
                format!("cache.flash={flash}"),
                format!("cache.index_flash={index}"),
            ];
            set.extend(more.map(str::to_owned));
            let checked = checked(&set);
            match checked {
                Ok(()) => assert_eq!(says, "", "{set:?}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!says.is_empty() && error.contains(says), "{set:?}: {error}");
                }
            }
        }
        let alone = set("cache.index_flash_size=4MiB").unwrap().check();
        assert!(alone.unwrap_err().to_string().contains("--index-flash"));
        let wrong = ["cache.index_flash=blocks".to_owned()];
        let error = checked(&wrong).unwrap_err().to_string();
        assert!(error.contains("--index-flash"), "{error}");
    }

    #[test]
    fn what_an_emulated_device_decides_itself_is_refused() {
        for (flash, setting, says) in [
            ("blocks", "cache.flash_size=4GiB", "--flash-size"),
            ("disk", "cache.flash_size=4GiB", "--flash-size"),
            ("blocks,file=x", "cache.segment_size=1MiB", "erase block"),
            ("blocks", "cache.journal=x", "in memory"),
        ] {
            let set = [format!("cache.flash={flash}"), setting.to_owned()];
            let refused = checked(&set);
            assert!(refused.unwrap_err().to_string().contains(says), "{setting}");
        }
        let error = checked(&["cache.flash=index".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("--flash"), "{error}");
    }
}
