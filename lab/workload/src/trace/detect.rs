//! Detection of a trace's format, from its name and its first line.

use std::path::Path;

use super::error::Trouble;
use super::format::Format;

/// Endings of the names of compressed files.
const COMPRESSED: [&str; 5] = [".xz", ".zst", ".zstd", ".gz", ".gzip"];

/// Returns the format of the trace at `path` that begins with `bytes`.
pub(super) fn format(path: &Path, bytes: &[u8]) -> Result<Format, Trouble> {
    let name = path.file_name().unwrap_or_default();
    let name = name.to_string_lossy().to_ascii_lowercase();
    let plain = COMPRESSED
        .iter()
        .find_map(|ending| name.strip_suffix(ending));
    let plain = plain.unwrap_or(&name);
    if plain.contains("oraclegeneral") {
        return Ok(Format::OracleGeneral);
    }
    if plain.ends_with(".be64") {
        return Ok(Format::Be64);
    }
    if plain.ends_with(".be32") {
        return Ok(Format::Be32);
    }
    by_first_line(bytes).ok_or_else(|| {
        Trouble::Input(format!(
            "the format is told neither by the name nor by the first line; write \
             trace:FORMAT:PATH, with one of {}",
            Format::all()
        ))
    })
}

fn by_first_line(bytes: &[u8]) -> Option<Format> {
    let line = bytes.split(|&byte| byte == b'\n').next()?;
    let line = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).ok()?;
    let columns: Vec<&str> = line.split(',').map(str::trim).collect();
    let named = |name| columns.contains(&name);
    if named("lbn") && named("op") {
        return Some(Format::CloudPhysics);
    }
    if named("key") && named("op") {
        return Some(Format::CacheLib);
    }
    let numeric = |column: &&str| column.parse::<u64>().is_ok();
    let is_twitter = columns.len() >= 7
        && columns.first().is_some_and(numeric)
        && columns
            .iter()
            .rev()
            .take(5)
            .enumerate()
            .all(|(at, column)| at == 1 || numeric(column));
    is_twitter.then_some(Format::Twitter)
}
