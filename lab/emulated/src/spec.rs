//! Emulated devices by name: `nand:PRESET` and `ftl:PRESET` with options, [`USAGE`]. For the same size, both kinds have the same
//! flash.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::nand::{self, ConfigError, Header, Nand, NandConfig, NandError, NandFileError, Preset};
use crate::{Ftl, FtlConfig, Libssd, SegmentShape};
use device::{Bytes, Disk, Flash, Geometry, parse_bytes};

/// Default size of the flash in bytes.
const DEFAULT_BYTES: u64 = 4 << 30;

/// Memory in bytes of a block besides its contents. Under a conventional drive, a page also takes its tag and both directions of
/// the map.
const BLOCK_BYTES: u64 = 100;
const PAGE_TAG_BYTES: u64 = 24;
const PAGE_MAP_BYTES: u64 = 8;

/// Syntax of the text.
const USAGE: &str = "write nand:PRESET or ftl:PRESET, then any of ,size=S ,block=S ,channels=N ,luns=N (on each \
                     channel) ,bad=P% ,cycles=N ,erase_us=T ,read_us=T ,program_us=T, for nand ,file=PATH and for ftl \
                     ,cache=S";

/// Largest share of bad blocks: more would leave no usable blocks.
const MOST_BAD_PERCENT: f64 = 90.0;

/// Longest part of an operation, in microseconds.
const MOST_MICROS: f64 = 1e6;

/// Beginning of each option, after the preset or another option.
const OPTIONS: [&str; 11] = [
    ",size=",
    ",block=",
    ",channels=",
    ",luns=",
    ",bad=",
    ",cycles=",
    ",erase_us=",
    ",read_us=",
    ",program_us=",
    ",file=",
    ",cache=",
];

/// Kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nand,
    Ftl,
}

/// Durations of operations that the text asks for, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    erase: Option<u32>,
    read: Option<u32>,
    program: Option<u32>,
}

/// Description of an emulated device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    kind: Kind,
    preset: Preset,
    size: Option<u64>,
    block: Option<u64>,
    channels: Option<u32>,
    luns_per_channel: Option<u32>,
    factory_bad_ppm: Option<u32>,
    cycles: Option<u32>,
    times: Times,
    file: Option<PathBuf>,
    cache: Option<u64>,
}

/// Error that says in one line why a device cannot be understood or made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the message says they are")]
pub enum SpecError {
    /// The text names no emulated device.
    #[error("`{0}` is no emulated device; {USAGE}")]
    NoDevice(String),
    /// The preset does not exist.
    #[error("`{name}` is no device preset; use one of {}", Preset::ALL.map(Preset::name).join(", "))]
    NoPreset { name: String },
    /// The option does not exist.
    #[error("`{0}` is no option of this device; {USAGE}")]
    NoOption(String),
    /// An option is given twice.
    #[error("`{0}` is given twice; leave one out")]
    Twice(String),
    /// The size is invalid.
    #[error("`{0}` is no size of a device; write for example 256MiB or 4GiB")]
    Size(String),
    /// The count is invalid.
    #[error("`{0}` is no count; write a whole number from 1 to {max}", max = u32::MAX)]
    Count(String),
    /// The time is invalid.
    #[error(
        "`{0}` is no time; write microseconds, for example erase_us=218.75, 0.001 to {MOST_MICROS}"
    )]
    Time(String),
    /// The share is invalid.
    #[error("`{0}` is no share of bad blocks; write for example bad=2%, 90% at most")]
    Share(String),
    /// The block size is not a whole number of pages.
    #[error(
        "block={} is no block of this device: it must be whole pages of {}, {} at most",
        Bytes(*bytes), Bytes((*page_bytes).into()), Bytes(*most)
    )]
    Block {
        bytes: u64,
        page_bytes: u32,
        most: u64,
    },
    /// The size has too few blocks, for the planes or for the GC of a conventional drive.
    #[error(
        "{:.1} are too few for this device: it needs {:.1}, {blocks} blocks of {:.1} on every channel; give a larger \
         size, smaller blocks (block=S) or fewer channels and LUNs (channels=N, luns=N)",
        Bytes(*bytes), Bytes(*smallest), Bytes(*block_bytes)
    )]
    TooSmall {
        bytes: u64,
        smallest: u64,
        blocks: u32,
        block_bytes: u64,
    },
    /// Such a device is impossible.
    #[error(transparent)]
    Device(#[from] NandError),
}

impl From<ConfigError> for SpecError {
    fn from(error: ConfigError) -> Self {
        Self::Device(error.into())
    }
}

/// An emulated device.
#[derive(Clone, Debug)]
pub enum Emulated {
    /// Flash in segments of one block.
    Nand(Arc<Libssd>),
    /// A conventional drive.
    Ftl(Arc<Ftl>),
}

impl DeviceSpec {
    /// Returns whether `text` names an emulated device rather than a file.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("nand:") || text.starts_with("ftl:")
    }

    /// Returns whether it is a conventional drive.
    pub fn is_ftl(&self) -> bool {
        self.kind == Kind::Ftl
    }

    /// Returns the file that keeps the device, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the shape that its flash will have, or has in its file. Makes nothing.
    pub fn geometry(&self) -> Result<Geometry, SpecError> {
        Ok(self.nand_config(0)?.geometry)
    }

    /// Makes the device, or opens the device in the file. `seed` chooses the bad blocks; a device in a file keeps its own. Blocks
    /// the thread.
    pub fn open(&self, seed: u64) -> Result<Emulated, SpecError> {
        let config = self.nand_config(seed)?;
        let nand = match &self.file {
            None => Nand::new(config)?,
            Some(path) => Nand::open_file(config, path)?,
        };
        let nand = Arc::new(nand);
        Ok(match self.kind {
            Kind::Nand => Emulated::Nand(Arc::new(Libssd::new(nand, SegmentShape::Block)?)),
            Kind::Ftl => Emulated::Ftl(Arc::new(Ftl::open(nand, self.ftl_config())?)),
        })
    }

    /// Returns the configuration of the drive around the flash.
    fn ftl_config(&self) -> FtlConfig {
        let of_preset = FtlConfig::of(self.preset);
        FtlConfig {
            cache_bytes: self.cache.unwrap_or(of_preset.cache_bytes),
            ..of_preset
        }
    }

    /// Applies to `config` the channels, LUNs, endurance and times asked for, or else those of the device `found` in the file.
    fn shaped(&self, config: &mut NandConfig, found: Option<&Header>) {
        let shape = &mut config.geometry;
        let of_found = |of: fn(&Header) -> u32| found.map(of);
        let channels = self
            .channels
            .or_else(|| of_found(|found| found.geometry.channels));
        shape.channels = channels.unwrap_or(shape.channels);
        shape.luns_per_channel = self.luns_per_channel.unwrap_or(shape.luns_per_channel);
        let told = found.and_then(Header::endurance);
        let endurance = &mut config.endurance;
        let cycles = self.cycles.or(told.map(|(cycles, _)| cycles));
        endurance.cycles = cycles.unwrap_or(endurance.cycles);
        if let Some(ppm) = self.factory_bad_ppm.or(told.map(|(_, ppm)| ppm)) {
            endurance.factory_bad = f64::from(ppm) / 1e6;
        }
        let told = found.and_then(Header::times);
        let (asked, timing) = (&self.times, &mut config.timing);
        let erase = asked.erase.or(told.map(|told| told.erase_ns));
        timing.erase_ns = erase.map_or(timing.erase_ns, u64::from);
        // One time for all pages, even if the preset's pages differ.
        if let Some(ns) = asked.read.or(told.and_then(|told| told.read_ns)) {
            timing.read_ns = vec![ns.into()];
        }
        if let Some(ns) = asked.program.or(told.and_then(|told| told.program_ns)) {
            timing.program_ns = vec![ns.into()];
        }
    }

    /// Returns the preset in full size, with the block size asked for, or else that of the device `found` in the file.
    fn with_blocks(&self, seed: u64, found: Option<&Header>) -> Result<NandConfig, SpecError> {
        let full = self.preset.full(seed);
        let Some(bytes) = self.block else {
            let pages = found.map(|found| found.geometry.pages_per_block);
            let is_usual = |pages| {
                let mut presets = Preset::ALL.iter();
                presets.any(|preset| preset.full(seed).geometry.pages_per_block == pages)
            };
            // With another preset's block size in the file, this preset keeps its own, and the check of the header fails.
            return Ok(match pages.filter(|&pages| !is_usual(pages)) {
                None => full,
                Some(pages) => self.preset.with_blocks_of(pages, seed),
            });
        };
        let (page_bytes, most) = (full.geometry.page_bytes, full.geometry.block_bytes());
        if bytes.is_multiple_of(page_bytes.into()) && bytes <= most {
            let pages = (bytes / u64::from(page_bytes)) as u32;
            return Ok(self.preset.with_blocks_of(pages, seed));
        }
        Err(SpecError::Block {
            bytes,
            page_bytes,
            most,
        })
    }

    /// Returns the configuration of the flash. The file at its path, if it exists, must match.
    fn nand_config(&self, seed: u64) -> Result<NandConfig, SpecError> {
        let wrong = |problem| {
            let path = self.file.as_deref().unwrap_or(Path::new(""));
            NandError::from(NandFileError::at(path)(problem))
        };
        let found = self.file.as_deref().map(nand::peek).transpose();
        let found = found.map_err(wrong)?.flatten();
        let bytes = self.size.unwrap_or(DEFAULT_BYTES);
        let mut config = self.with_blocks(seed, found.as_ref())?;
        self.shaped(&mut config, found.as_ref());
        // Both kinds get as many LUNs as a conventional drive of that size.
        let kept = FtlConfig::of(self.preset).least_blocks_per_lun(&config);
        let least_per_lun = match self.kind {
            Kind::Nand => config.planes,
            Kind::Ftl => kept,
        };
        let least = least_per_lun.saturating_mul(self.luns_per_channel.unwrap_or(1));
        let shape = &config.geometry;
        let smallest =
            (u64::from(shape.channels) * u64::from(least)).saturating_mul(shape.block_bytes());
        if self.size.is_some_and(|bytes| bytes < smallest) {
            return Err(SpecError::TooSmall {
                bytes,
                smallest,
                blocks: least,
                block_bytes: shape.block_bytes(),
            });
        }
        let mut config = match self.luns_per_channel {
            Some(luns) => config.sized_for(bytes, luns, least_per_lun),
            None => config.sized(bytes, kept, least_per_lun),
        };
        if let Some(found) = found {
            config.seed = found.seed;
            if self.size.is_none() {
                let luns = self.luns_per_channel;
                config.geometry.luns_per_channel = luns.unwrap_or(found.geometry.luns_per_channel);
                config.geometry.blocks_per_lun = found.geometry.blocks_per_lun;
            }
            found.check(&config).map_err(wrong)?;
        }
        config.check()?;
        Ok(config)
    }
}

impl Emulated {
    /// Returns the flash that the device is, or is made of.
    pub fn nand(&self) -> &Arc<Nand> {
        match self {
            Self::Nand(flash) => flash.nand(),
            Self::Ftl(disk) => disk.nand(),
        }
    }

    /// Returns the memory in bytes that the device takes once it is full: its contents unless they are in a file, the state of
    /// each page, and the write cache.
    pub fn memory_bytes(&self) -> u64 {
        let nand = self.nand();
        let contents = if nand.is_in_file() {
            0
        } else {
            nand.config().raw_bytes()
        };
        let shape = nand.config().geometry;
        let blocks = u64::from(shape.blocks());
        let (a_page, cache) = match self {
            Self::Nand(_) => (0, 0),
            Self::Ftl(disk) => (PAGE_TAG_BYTES + PAGE_MAP_BYTES, disk.config().cache_bytes),
        };
        contents + cache + blocks * (BLOCK_BYTES + u64::from(shape.pages_per_block) * a_page)
    }

    /// Returns one line for the log: shape, size and usable part.
    pub fn describe(&self) -> String {
        let config = self.nand().config();
        let shape = &config.geometry;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let flash = format!(
            "{} channels x {} LUNs x {} blocks of {} KiB, {} planes, pages of {} KiB: {} MiB of flash",
            shape.channels,
            shape.luns_per_channel,
            shape.blocks_per_lun,
            shape.block_bytes() >> 10,
            config.planes,
            shape.page_bytes >> 10,
            mib(config.raw_bytes()),
        );
        match self {
            Self::Nand(flash_in_segments) => {
                let bad = flash_in_segments.bad_blocks().len();
                format!("emulated NAND, {flash}, {bad} blocks bad")
            }
            Self::Ftl(disk) => {
                let usable = mib(disk.len_bytes());
                let cache = match disk.config().cache_bytes {
                    0 => String::new(),
                    bytes => format!(", {:.1} of write cache", Bytes(bytes)),
                };
                format!("emulated SSD, {flash}, {usable:.0} MiB usable{cache}")
            }
        }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Nand => "nand",
            Kind::Ftl => "ftl",
        };
        write!(f, "{kind}:{}", self.preset)?;
        if let Some(size) = self.size {
            write!(f, ",size={size}")?;
        }
        if let Some(block) = self.block {
            write!(f, ",block={block}")?;
        }
        for (name, count) in [
            ("channels", self.channels),
            ("luns", self.luns_per_channel),
            ("cycles", self.cycles),
        ] {
            if let Some(count) = count {
                write!(f, ",{name}={count}")?;
            }
        }
        if let Some(ppm) = self.factory_bad_ppm {
            write!(f, ",bad={}%", f64::from(ppm) / 1e4)?;
        }
        for (name, ns) in [
            ("erase_us", self.times.erase),
            ("read_us", self.times.read),
            ("program_us", self.times.program),
        ] {
            if let Some(ns) = ns {
                write!(f, ",{name}={}", f64::from(ns) / 1e3)?;
            }
        }
        if let Some(cache) = self.cache {
            write!(f, ",cache={cache}")?;
        }
        if let Some(file) = &self.file {
            write!(f, ",file={}", file.display())?;
        }
        Ok(())
    }
}

impl FromStr for DeviceSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (kind, rest) = match text.split_once(':') {
            Some(("nand", rest)) => (Kind::Nand, rest),
            Some(("ftl", rest)) => (Kind::Ftl, rest),
            _ => return Err(SpecError::NoDevice(text.to_owned())),
        };
        let (name, mut options) = match rest.split_once(',') {
            Some((name, options)) => (name, Some(options)),
            None => (rest, None),
        };
        let preset = Preset::named(name).ok_or_else(|| SpecError::NoPreset {
            name: name.to_owned(),
        })?;
        let mut spec = Self {
            kind,
            preset,
            size: None,
            block: None,
            channels: None,
            luns_per_channel: None,
            factory_bad_ppm: None,
            cycles: None,
            times: Times::default(),
            file: None,
            cache: None,
        };
        while let Some(all) = options {
            // The path may contain commas: it extends to the next option.
            let next = OPTIONS.iter().filter_map(|option| all.find(option)).min();
            let (option, rest) = match next {
                Some(at) => (&all[..at], Some(&all[at + 1..])),
                None => (all, None),
            };
            options = rest;
            spec.set(option)?;
        }
        Ok(spec)
    }
}

impl DeviceSpec {
    fn set(&mut self, option: &str) -> Result<(), SpecError> {
        let size = |text: &str| {
            let bytes = parse_bytes(text).filter(|&bytes| bytes > 0);
            bytes.ok_or_else(|| SpecError::Size(text.to_owned()))
        };
        let count = |text: &str| {
            let count = text.parse().ok().filter(|&count: &u32| count > 0);
            count.ok_or_else(|| SpecError::Count(text.to_owned()))
        };
        // Returns millionths.
        let share = |text: &str| {
            let percent = text.strip_suffix('%').and_then(|text| text.parse().ok());
            let percent =
                percent.filter(|percent: &f64| (0.0..=MOST_BAD_PERCENT).contains(percent));
            let ppm = percent.map(|percent| (percent * 1e4).round() as u32);
            ppm.ok_or_else(|| SpecError::Share(text.to_owned()))
        };
        let time = |text: &str| {
            let micros = text.parse().ok();
            let micros = micros.filter(|micros: &f64| (1e-3..=MOST_MICROS).contains(micros));
            let ns = micros.map(|micros| (micros * 1e3).round() as u32);
            ns.ok_or_else(|| SpecError::Time(text.to_owned()))
        };
        let no_option = || SpecError::NoOption(option.to_owned());
        let (name, text) = option.split_once('=').ok_or_else(no_option)?;
        let is_twice = match name {
            "size" => self.size.replace(size(text)?).is_some(),
            "block" => self.block.replace(size(text)?).is_some(),
            "channels" => self.channels.replace(count(text)?).is_some(),
            "luns" => self.luns_per_channel.replace(count(text)?).is_some(),
            "cycles" => self.cycles.replace(count(text)?).is_some(),
            "erase_us" => self.times.erase.replace(time(text)?).is_some(),
            "read_us" => self.times.read.replace(time(text)?).is_some(),
            "program_us" => self.times.program.replace(time(text)?).is_some(),
            "bad" => self.factory_bad_ppm.replace(share(text)?).is_some(),
            "file" if self.kind == Kind::Nand && !text.is_empty() => {
                self.file.replace(text.into()).is_some()
            }
            "cache" if self.kind == Kind::Ftl => self.cache.replace(size(text)?).is_some(),
            _ => return Err(no_option()),
        };
        if is_twice {
            return Err(SpecError::Twice(name.to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NandTiming;
    use device::BlockId;

    fn parse(text: &str) -> Result<DeviceSpec, SpecError> {
        text.parse()
    }

    #[test]
    fn what_is_understood_is_written_the_same() {
        for text in [
            "nand:didacache",
            "ftl:crucial-m4,size=4294967296",
            "nand:qlc,size=1000,file=flash,1",
            "nand:mlc,channels=1,luns=2,cycles=50,bad=2.5%,file=x",
            "ftl:mlc,luns=2,bad=0%",
            "nand:didacache,erase_us=218.75,read_us=1,program_us=1000000",
            "ftl:didacache,size=1000,cache=65536",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            parse("nand:mlc,file=x,size=1.5GiB").unwrap(),
            parse("nand:mlc,size=1536MiB,file=x").unwrap()
        );
        assert!(DeviceSpec::is_one("ftl:tlc") && !DeviceSpec::is_one("./nand"));
    }

    #[test]
    fn what_is_not_understood_is_said_in_one_line() {
        for (text, says) in [
            ("disk:mlc", "no emulated device"),
            ("nand", "no emulated device"),
            ("nand:", "no device preset"),
            ("nand:slc,size=1GiB", "didacache, crucial-m4, mlc, tlc, qlc"),
            ("nand:mlc,", "no option"),
            ("nand:mlc,speed=9", "no option"),
            ("nand:mlc,file=", "no option"),
            ("ftl:mlc,file=x", "no option"),
            ("nand:mlc,cache=1MiB", "no option"),
            ("ftl:mlc,cache=0", "no size"),
            ("ftl:mlc,cache=1MiB,cache=1MiB", "twice"),
            ("ftl:mlc,size=many", "no size"),
            ("ftl:mlc,size=-4GiB", "no size"),
            ("ftl:mlc,size=0", "no size"),
            ("ftl:mlc,size=1GiB,size=2GiB", "twice"),
            ("nand:mlc,channels=2,channels=2", "twice"),
            ("nand:mlc,channels=0", "no count"),
            ("nand:mlc,luns=-1", "no count"),
            ("nand:mlc,cycles=4294967296", "no count"),
            ("nand:mlc,erase_us=0", "no time"),
            ("nand:mlc,erase_us=7ms", "no time"),
            ("nand:mlc,read_us=-1", "no time"),
            ("ftl:mlc,program_us=1000001", "no time"),
            ("ftl:mlc,read_us=NaN", "no time"),
            ("ftl:mlc,erase_us=1,erase_us=1", "twice"),
            ("nand:mlc,bad=0.02", "no share"),
            ("nand:mlc,bad=91%", "no share"),
            ("nand:mlc,bad=NaN%", "no share"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(
                error.contains(says) && !error.contains('\n'),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn devices_have_at_least_the_size_asked_for_and_say_what_came_of_it() {
        for preset in Preset::ALL {
            for kind in ["nand", "ftl"] {
                let spec = parse(&format!("{kind}:{preset},size=6GiB")).unwrap();
                let device = spec.open(1).unwrap();
                assert!(device.nand().config().raw_bytes() >= 6 << 30);
                let line = device.describe();
                assert!(line.contains("channels"), "{line}");
                if let Emulated::Ftl(disk) = &device {
                    let share = disk.len_bytes() as f64 / device.nand().config().raw_bytes() as f64;
                    assert!((0.74..=0.75).contains(&share), "{preset}: {share}");
                }
            }
        }
        let smallest = parse("ftl:mlc,size=1344MiB").unwrap().open(1).unwrap();
        assert_eq!(smallest.nand().config().raw_bytes(), 1344 << 20);
        for (too_small, is_enough) in [
            ("ftl:mlc,size=1343MiB", "nand:mlc,size=1343MiB"),
            ("ftl:mlc,size=512MiB", "ftl:mlc,size=512MiB,block=1MiB"),
        ] {
            let refused = parse(too_small).unwrap().geometry();
            assert!(refused.is_err_and(|error| error.to_string().contains("block=S")));
            assert!(parse(is_enough).unwrap().geometry().is_ok());
        }
        let refused = parse("nand:didacache,size=1MiB").unwrap().geometry();
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("it needs 96 MiB"), "{refused}");
        let too_large = parse("nand:mlc,size=900TB").unwrap().open(1);
        assert!(too_large.is_err_and(|error| error.to_string().contains("use fewer")));
    }

    #[test]
    fn channels_luns_bad_blocks_and_cycles_are_as_asked_for() {
        for (text, channels, luns) in [
            ("nand:mlc,size=64MiB,channels=1", 1, 1),
            ("nand:mlc,size=1GiB,channels=2,luns=16", 2, 16),
            ("ftl:mlc,size=1GiB,block=1MiB,channels=3,luns=2", 3, 2),
        ] {
            let shape = parse(text).unwrap().geometry().unwrap();
            assert_eq!((shape.channels, shape.luns_per_channel), (channels, luns));
            let blocks = shape.blocks_per_lun * luns * channels;
            let bytes = u64::from(blocks) * shape.block_bytes();
            let asked = parse(text).unwrap().size.unwrap();
            assert!((asked..asked * 11 / 10).contains(&bytes), "{text}: {bytes}");
        }
        let refused = parse("nand:mlc,size=64MiB,luns=16").unwrap().geometry();
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("luns=N"), "{refused}");
        let refused = parse("nand:mlc,luns=300").unwrap().geometry().unwrap_err();
        assert!(refused.to_string().contains("use fewer"), "{refused}");
        let bad = parse("nand:mlc,size=1GiB,block=256KiB,bad=10%,cycles=7").unwrap();
        let device = bad.open(1).unwrap();
        assert_eq!(device.nand().config().endurance.cycles, 7);
        let share = device.nand().bad_blocks().len() as f64 / 4096.0;
        assert!((0.08..0.12).contains(&share), "{share}");
    }

    #[test]
    fn a_device_in_a_file_keeps_its_channels_and_its_endurance() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flash");
        let plain = format!("nand:mlc,file={}", path.display());
        let all = plain.replace(
            ',',
            ",size=64MiB,block=1MiB,channels=2,luns=3,bad=5%,cycles=9,",
        );
        let config = used(&all);
        assert_eq!(
            (config.endurance.cycles, config.endurance.factory_bad),
            (9, 0.05)
        );
        let again = parse(&plain).unwrap().open(2).unwrap();
        assert_eq!(*again.nand().config(), config);
        drop(again);
        for other in ["channels=1", "luns=1", "bad=6%", "cycles=8"] {
            assert_another(&plain.replace(',', &format!(",{other},")));
        }
    }

    #[test]
    fn times_are_as_asked_for_and_a_file_keeps_them() {
        let timing = |device: &Emulated| device.nand().config().timing.clone();
        for kind in ["nand", "ftl"] {
            let spec = format!("{kind}:mlc,size=1GiB,block=1MiB");
            let usual = timing(&parse(&spec).unwrap().open(1).unwrap());
            assert_eq!(usual.erase_ns, 3_000_000 / 4, "that of its block");
            let longer = parse(&format!("{spec},erase_us=1500.5")).unwrap();
            let expected = NandTiming {
                erase_ns: 1_500_500,
                ..usual.clone()
            };
            assert_eq!(timing(&longer.open(1).unwrap()), expected);
            let others = parse(&format!("{spec},read_us=50,program_us=900")).unwrap();
            let expected = NandTiming {
                read_ns: vec![50_000],
                program_ns: vec![900_000],
                ..usual
            };
            assert_eq!(timing(&others.open(1).unwrap()), expected);
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flash");
        let plain = format!("nand:mlc,file={}", path.display());
        let asked = "size=64MiB,block=1MiB,channels=2,erase_us=2000,read_us=50";
        let config = used(&plain.replace(',', &format!(",{asked},")));
        let again = parse(&plain).unwrap().open(2).unwrap();
        assert_eq!(*again.nand().config(), config);
        assert_eq!(timing(&again).program_ns, [850_000, 2_300_000]);
        drop(again);
        for other in ["erase_us=2001", "read_us=51", "program_us=850"] {
            assert_another(&plain.replace(',', &format!(",{other},")));
        }
        let same = plain.replace(',', ",erase_us=2000,read_us=50,");
        assert!(parse(&same).unwrap().open(1).is_ok());
    }

    #[test]
    fn a_device_whose_file_does_not_tell_its_times_has_those_of_its_preset() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flash");
        let plain = format!("nand:mlc,file={}", path.display());
        let config = used(&plain.replace(',', ",size=64MiB,block=1MiB,channels=2,"));
        nand::forget_times(&path);
        let again = parse(&plain).unwrap().open(2).unwrap();
        assert_eq!(*again.nand().config(), config);
    }

    /// Makes a device in the file that `spec` names and erases one of its blocks, because an unused device removes its file.
    /// Returns the configuration.
    fn used(spec: &str) -> NandConfig {
        let device = parse(spec).unwrap().open(1).unwrap();
        let Emulated::Nand(flash) = &device else {
            panic!("flash was asked for");
        };
        let bad = flash.nand().bad_blocks();
        let good = (0..).map(BlockId).find(|block| !bad.contains(block));
        let erased = runtime::sim::Sim::new(1).block_on(flash.nand().erase(good.unwrap()));
        erased.unwrap();
        device.nand().config().clone()
    }

    fn assert_another(text: &str) {
        let spec = parse(text).unwrap();
        let refused = [spec.open(1).map(|_| ()), spec.geometry().map(|_| ())];
        for refused in refused {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("holds a device"), "{text}: {refused}");
        }
    }

    #[test]
    fn a_device_in_a_file_keeps_its_size_its_blocks_and_its_seed() {
        for block in ["", ",block=1MiB"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("flash");
            let sized = format!("nand:mlc,size=300MiB{block},file={}", path.display());
            let unsized_spec = format!("nand:mlc,file={}", path.display());
            let config = used(&sized);
            let again = parse(&unsized_spec).unwrap().open(2).unwrap();
            assert_eq!(*again.nand().config(), config);
            drop(again);
            assert_another(&sized.replace("300", "600"));
            assert_another(&format!("nand:mlc,block=2MiB,file={}", path.display()));
            if block.is_empty() {
                assert_another(&unsized_spec.replace("mlc", "tlc"));
            }
        }
    }

    #[test]
    fn a_look_at_the_shape_makes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flash");
        let spec = parse(&format!(
            "nand:didacache,size=192MiB,file={}",
            path.display()
        ))
        .unwrap();
        assert_eq!(spec.geometry().unwrap().blocks(), 24);
        assert!(!path.exists());
    }

    #[test]
    fn a_drive_has_the_write_cache_asked_for_and_none_without() {
        let spec = "ftl:mlc,size=1GiB,block=1MiB";
        let plain = parse(spec).unwrap().open(1).unwrap();
        let with = parse(&format!("{spec},cache=8MiB")).unwrap();
        let with = with.open(1).unwrap();
        let cache = |device: &Emulated| match device {
            Emulated::Ftl(disk) => disk.config().cache_bytes,
            Emulated::Nand(_) => panic!("a drive was asked for"),
        };
        assert_eq!((cache(&plain), cache(&with)), (0, 8 << 20));
        assert_eq!(with.memory_bytes() - plain.memory_bytes(), 8 << 20);
        assert!(!plain.describe().contains("cache"));
        let line = with.describe();
        assert!(line.contains(", 8 MiB of write cache"), "{line}");
        let refused = parse(&format!("{spec},cache=8KiB")).unwrap().open(1);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("holds no page of 16"), "{refused}");
    }

    #[test]
    fn memory_is_that_of_the_contents_unless_they_are_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let in_memory = parse("nand:mlc,size=256MiB").unwrap().open(1).unwrap();
        let raw = in_memory.nand().config().raw_bytes();
        assert!((raw..raw + raw / 100).contains(&in_memory.memory_bytes()));
        let text = format!("nand:mlc,size=256MiB,file={}/flash", dir.path().display());
        let in_file = parse(&text).unwrap().open(1).unwrap();
        assert_eq!(in_memory.memory_bytes() - in_file.memory_bytes(), raw);
    }
}
