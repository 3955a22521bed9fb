//! Readers against small files, whole and damaged.

use std::fs;
use std::io::Write;

use lzma_rust2::{XzOptions, XzWriter};

use std::num::NonZeroU8;

use super::columns::hashed;
use super::format::FORMATS;
use super::*;
use crate::error::assert_refused;
use crate::key_id::KeyId;
use crate::mix::Op;

const TWITTER: &str = "0,q:q:1:8WTfjZU14ee,17,213,4,get,0\n\
                       0,yDqF:3q:1AJrrJ1nnCJKKrnGx1A,27,27,5,set,86400\n\
                       1,with,comma,10,5,6,add,60\n\
                       2,gone,4,0,4,delete,0\n\
                       2,q:q:1:8WTfjZU14ee,17,213,4,gets,0";

const KVCACHE: &str = "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase,sub_usecase\n\
                       604038471,82131353f9ddc8c6,48,GET,2,87,1,0,366387042,3003229276\n\
                       604038471,a54f88ab02ece24d,24,SET,1,300,0,600,699950563,699950563\n\
                       604038472,a54f88ab02ece24d,24,DELETE,0,0,0,0,699950563,699950563\n\
                       604038472,82131353f9ddc8c6,48,GET_LEASE,1,87,1,0,366387042,3003229276\n";

const CLOUDPHYSICS: &str = "version,time,op,size,lbn\n\
                            1,5633898,2a,512,42932745\n\
                            1,5633899,28,4096,42932746\n";

/// Reads all requests of a file of that name and content. The error leaves out the file's name.
fn read_file(
    name: &str,
    bytes: impl AsRef<[u8]>,
    format: Option<Format>,
) -> Result<Vec<Request>, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    let text = |error: TraceError| {
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        let what = text.strip_prefix(path.to_str().unwrap());
        what.expect("the message begins with the file's name")
            .to_owned()
    };
    let mut reader = TraceReader::open(&path, format).map_err(text)?;
    let mut requests = Vec::new();
    while let Some(request) = reader.next_request().map_err(text)? {
        requests.push(request);
    }
    let behind = reader.next_request().unwrap();
    assert_eq!(behind, None, "the end stays the end");
    Ok(requests)
}

fn read(name: &str, bytes: impl AsRef<[u8]>) -> Result<Vec<Request>, String> {
    read_file(name, bytes, None)
}

fn read_as(format: Format, bytes: impl AsRef<[u8]>) -> Result<Vec<Request>, String> {
    read_file("trace", bytes, Some(format))
}

/// Panics unless reading fails with a message that continues with `words` behind the file's name.
fn assert_fails(format: Format, bytes: impl AsRef<[u8]>, words: &str) {
    let error = read_as(format, bytes).unwrap_err();
    assert!(error.starts_with(words), "{error}");
}

fn request(op: Op, key: KeyId, key_len: u8, value_len: u32, ttl_s: u32) -> Request {
    Request {
        op,
        key,
        key_len: NonZeroU8::new(key_len),
        value_len,
        ttl_s,
    }
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

type Compress = fn(&[u8]) -> Vec<u8>;

const COMPRESSIONS: [(&str, Compress); 3] = [("xz", xz), ("zstd", zstd), ("gzip", gzip)];

#[test]
fn twitter_rows_are_read() {
    let first = request(Op::Get, hashed(b"q:q:1:8WTfjZU14ee"), 17, 213, 0);
    let second = hashed(b"yDqF:3q:1AJrrJ1nnCJKKrnGx1A");
    let expected = [
        first,
        request(Op::Set, second, 27, 27, 86_400),
        request(Op::Set, hashed(b"with,comma"), 10, 5, 60),
        request(Op::Delete, hashed(b"gone"), 4, 0, 0),
        first,
    ];
    assert_eq!(read("cluster001.csv", TWITTER).unwrap(), expected);
    let carriage_returns = TWITTER.replace('\n', "\r\n");
    assert_eq!(read("cluster001", carriage_returns).unwrap(), expected);
}

#[test]
fn kvcache_rows_are_read_by_the_names_of_their_columns() {
    let key = hashed(b"82131353f9ddc8c6");
    let get = request(Op::Get, key, 48, 87, 0);
    let expected = [
        get,
        get,
        request(Op::Set, hashed(b"a54f88ab02ece24d"), 24, 300, 600),
        get,
    ];
    assert_eq!(read("kvcache.csv", KVCACHE).unwrap(), expected);
    // The traces of 2022 have fewer columns, in another order.
    let older = "key,op,size,op_count,key_size\n82131353f9ddc8c6,GET,87,1,48\n";
    assert_eq!(read("kvcache.csv", older).unwrap(), [get]);
}

#[test]
fn cloudphysics_rows_are_read() {
    let expected = [
        request(Op::Set, KeyId(42_932_745), 0, 512, 0),
        request(Op::Get, KeyId(42_932_746), 0, 4096, 0),
    ];
    assert_eq!(read("io.csv", CLOUDPHYSICS).unwrap(), expected);
}

#[test]
fn binary_records_are_read() {
    let mut bytes = Vec::new();
    for (time, id, size) in [(1u32, 7u64, 100u32), (2, u64::MAX, 4096)] {
        bytes.extend(time.to_le_bytes());
        bytes.extend(id.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend((-1i64).to_le_bytes());
    }
    let expected = [
        request(Op::Get, KeyId(7), 0, 100, 0),
        request(Op::Get, KeyId(u64::MAX), 0, 4096, 0),
    ];
    assert_eq!(read("w01.oracleGeneral.bin", &bytes).unwrap(), expected);
    assert_eq!(read_as(Format::OracleGeneral, &bytes).unwrap(), expected);
}

#[test]
fn key_lists_are_read() {
    let wide = [1i64, -2].map(i64::to_be_bytes).concat();
    let narrow = [1i32, -2].map(i32::to_be_bytes).concat();
    let reads = |keys: [u64; 2]| keys.map(|key| request(Op::Get, KeyId(key), 0, 0, 0));
    let expected = reads([1, u64::MAX - 1]);
    assert_eq!(read("a.be64", &wide).unwrap(), expected);
    assert_eq!(read_as(Format::Be64, &wide).unwrap(), expected);
    let expected = reads([1, 0xFFFF_FFFE]);
    assert_eq!(read("a.be32.xz", xz(&narrow)).unwrap(), expected);
}

#[test]
fn compressed_traces_are_read_as_they_are_whatever_their_name() {
    let plain = read("t.csv", TWITTER).unwrap();
    let bytes = TWITTER.as_bytes();
    assert_eq!(read("t.csv.xz", xz(bytes)).unwrap(), plain);
    assert_eq!(read("t.csv.zst", zstd(bytes)).unwrap(), plain);
    assert_eq!(read("t.csv.gz", gzip(bytes)).unwrap(), plain);
    assert_eq!(read("t.csv", gzip(bytes)).unwrap(), plain);
}

#[test]
fn compressed_parts_one_after_the_other_are_one_trace() {
    let (front, back) = TWITTER.as_bytes().split_at(50);
    let plain = read("t.csv", TWITTER).unwrap();
    for (_, compress) in COMPRESSIONS {
        let parts = [compress(front), compress(back)].concat();
        assert_eq!(read("t.csv", parts).unwrap(), plain);
    }
    // A skippable frame of zstd holds no data.
    let skippable = [
        &[0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3][..],
        &zstd(TWITTER.as_bytes()),
    ];
    assert_eq!(read("t.csv", skippable.concat()).unwrap(), plain);
}

/// Rows enough for several windows and several blocks of compressed data.
fn long() -> String {
    use std::fmt::Write as _;
    let mut rows = String::new();
    for row in 0..20_000u64 {
        let key = crate::stream::mix64(row);
        writeln!(rows, "{row},{key:016x},16,{},1,get,0", key % 1000).unwrap();
    }
    rows
}

#[test]
fn long_traces_are_read_to_their_end() {
    let rows = long();
    let plain = read("t.csv", &rows).unwrap();
    assert_eq!(plain.len(), 20_000);
    for (row, request) in plain.iter().enumerate() {
        let key = crate::stream::mix64(row as u64);
        assert_eq!(request.key, hashed(format!("{key:016x}").as_bytes()));
    }
    for (_, compress) in COMPRESSIONS {
        assert_eq!(read("t.csv", compress(rows.as_bytes())).unwrap(), plain);
    }
}

#[test]
fn compressed_data_that_are_cut_off_say_after_which_line() {
    let rows = long();
    for (name, compress) in COMPRESSIONS {
        let bytes = compress(rows.as_bytes());
        let words = format!("the {name} data are cut off or corrupt");
        let cut = |keep| read_as(Format::Twitter, &bytes[..keep]);
        assert_refused(cut(bytes.len() / 2), &words);
        assert_refused(cut(bytes.len() - 1), &words);
        assert_fails(Format::Twitter, &bytes[..bytes.len() - 1], ", after line ");
    }
}

#[test]
fn corrupt_compressed_data_are_noticed() {
    let rows = long();
    for (name, compress) in COMPRESSIONS {
        let mut bytes = compress(rows.as_bytes());
        let middle = bytes.len() / 2;
        for byte in &mut bytes[middle..middle + 8] {
            *byte ^= 0x55;
        }
        let read = read_as(Format::Twitter, &bytes);
        assert!(
            read.is_err(),
            "{name}: the checksum must fail at the latest"
        );
    }
}

#[test]
fn damaged_rows_are_refused_with_their_line() {
    for (rows, line, words) in [
        (
            "1,a,1,1,1,get,0\n2,a,1,1,get,0\n",
            2,
            "6 columns, where 7 are expected",
        ),
        ("1,a,1,1,1,get,0\n\n", 2, "1 column, where 7 are expected"),
        (
            "1,a,1,1,1,get,0\n2,a,1,1,1,peek,0",
            2,
            "the operation 'peek'",
        ),
        ("1,a,1,x1,1,get,0", 1, "the value size 'x1' is not a number"),
        ("1,a,1,-1,1,get,0", 1, "the value size '-1' is not a number"),
        ("1,a,,1,1,get,0", 1, "the key size '' is not a number"),
        (
            "1,a,251,1,1,get,0",
            1,
            "a key of 251 bytes; keys have at most 250",
        ),
        ("1,a,1,5000000000,1,get,0", 1, "a value of 5000000000 bytes"),
        ("time,a,1,1,1,get,0", 1, "the timestamp 'time'"),
        ("99999999999999999999,a,1,1,1,get,0", 1, "the timestamp"),
    ] {
        assert_fails(Format::Twitter, rows, &format!(", line {line}: {words}"));
    }
    for (rows, line, words) in [
        ("key,size\na,1\n", 1, "no column is called 'op'"),
        ("op,key\nGET,a\n", 1, "no column is called 'size'"),
        ("", 1, "the file is empty"),
        (TWITTER, 1, "no column is called 'key'"),
        ("key,op,size\na,GET,1\nb,GET\n", 3, "2 columns, where 3"),
        ("key,op,size\na,PUT,1\n", 2, "the operation 'PUT'"),
        ("key,op,size,op_count\na,GET,1,99999999\n", 2, "an op_count"),
    ] {
        assert_fails(Format::CacheLib, rows, &format!(", line {line}: {words}"));
    }
    for (rows, line, words) in [
        (KVCACHE, 1, "no column is called 'lbn'"),
        ("op,size,lbn\n35,1,1\n", 2, "the operation '35'"),
    ] {
        assert_fails(
            Format::CloudPhysics,
            rows,
            &format!(", line {line}: {words}"),
        );
    }
}

#[test]
fn a_record_that_is_cut_off_is_refused_with_its_number() {
    let words = ", record 2: the file ends within a record, after 10 of 24 bytes";
    assert_fails(Format::OracleGeneral, [0; 24 + 10], words);
    let words = ", record 1: the file ends within a record, after 7 of 8 bytes";
    assert_fails(Format::Be64, [0; 7], words);
}

#[test]
fn a_line_without_end_is_refused() {
    let words = ": a line of more than 65536 bytes";
    assert_fails(Format::Twitter, vec![b'x'; 200_000], words);
}

#[test]
fn a_format_that_nothing_tells_must_be_given() {
    for bytes in [
        &b""[..],
        b"\0\0\0\x01\0\0\0\x02",
        b"1,2,3\n",
        b"once upon a time\n",
    ] {
        assert_refused(read("web07.trace", bytes), "trace:FORMAT:PATH");
        assert_refused(read("web07.trace", bytes), "be32");
    }
}

#[test]
fn files_that_are_not_there_are_named() {
    let absent = TraceReader::open(Path::new("/nowhere/x.csv"), None);
    assert_refused(absent, "/nowhere/x.csv: cannot be read: ");
    let directory = tempfile::tempdir().unwrap();
    let refused = TraceReader::open(directory.path(), None);
    assert_refused(refused, ": is a directory, not a trace");
}

#[test]
fn formats_are_known_by_their_names() {
    for (format, name) in FORMATS {
        assert_eq!(Format::by_name(name), Some(format));
        assert_eq!(format.to_string(), name);
    }
    let mixed_case = Format::by_name("oracleGeneral");
    assert_eq!(mixed_case, Some(Format::OracleGeneral));
    assert_eq!(Format::by_name("zip"), None);
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
        start in proptest::sample::select(vec![
            &b""[..], b"\x28\xB5\x2F\xFD", b"\xFD7zXZ\0", b"\x1F\x8B\x08", b"0,a,1,1,1,get,0\n", b"key,op,size\n",
        ]),
        format in proptest::sample::select(FORMATS.map(|(format, _)| Some(format)).to_vec()),
        told in proptest::prelude::any::<bool>(),
    ) {
        let bytes = [start, &bytes].concat();
        // Either a number of requests that the bytes can hold, or an error that names the file.
        if let Ok(requests) = read_file("trace", &bytes, format.filter(|_| told)) {
            proptest::prop_assert!(requests.len() <= 1 << 24);
        }
    }

    #[test]
    fn a_row_is_read_as_it_was_written(
        key in "[!-~]{1,40}", key_size in 1u8..=250, value in 0u32..1 << 30, ttl: u32,
        op in proptest::sample::select(vec![("get", Op::Get), ("set", Op::Set), ("delete", Op::Delete)]),
    ) {
        let row = format!("7,{key},{key_size},{value},3,{},{ttl}\n", op.0);
        let expected = request(op.1, hashed(key.as_bytes()), key_size, value, ttl);
        proptest::prop_assert_eq!(read_as(Format::Twitter, row).unwrap(), [expected]);
    }
}
