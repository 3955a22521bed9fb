//! The journal: a head, and a ring of chunks of records. Everything is in 64-bit words.
//!
//! ```text
//!  page 0: head                chunk = header (8 words) │ record │ record │ … │ 0
//!  word 0 magic                word 0 magic
//!       1 format                    1 image
//!       2 image                     2 sequence number: chunk s lies in place (s - 1) mod chunks
//!       3 words of a chunk          3 next segment sequence number when it was begun
//!       4 chunks                    4 checksum of words 0 to 3
//!       5 run                       5 seal: fill state when it was closed; else zero
//!       6 checksum of words 0 to 4  6 and 7 zero
//!       7 run that has begun
//!       8 latest Unix second seen
//!       9 void
//!      10 to 12, 13 to 15: progress of a sync: chunk, its fill state, checksum of both
//!
//!  fill state of a chunk: its next word 32 │ checksum of its words from 8 up to there 32
//!
//!  record: kind 4 bits │ 60 bits
//!    1 DEAD      generation 18 │ location 42       5 CUTOFF   partition 12 │ chunk 28 │ 4 zero │ version 63..48
//!    2 SEGMENT DEAD segment 28 │ generation 63..32 6          version 47..0
//!    8               generation 31..0                7 FLUSH AT chunk 28 │ Unix second 32
//!    3 KEY DEAD      hash 63..4, 60 bits         4 RETIRED  segment 28
//!    9               version 60                   10 FLUSH AT, which replaces one that had come
//!   11 ENTRY LOST segment 28 │ generation 31..0  13 KEY LOCATED  hash 63..4, 60 bits
//!   12               mark 30                      14              version 60
//! ```
//!
//! A generation is a segment's sequence number; DEAD keeps its low bits. Records only declare items dead: a record that is
//! read where it does not belong makes a miss.

use zerocopy::IntoBytes;

use crate::FormatError;

/// Version of the journal's format.
pub const JOURNAL_FORMAT: u64 = 4;
/// Words of the head: one page.
pub const HEAD_WORDS: usize = 512;
/// Words of a chunk's header.
pub const CHUNK_HEADER_WORDS: usize = 8;
/// The word of the head that holds the run that has begun. The superblock holds it, too.
pub const BEGUN_WORD: usize = 7;
/// The word of the head that holds the latest Unix second seen: see [`encode_clock`].
pub const CLOCK_WORD: usize = 8;
/// The word of the head that is not zero once records are missing from the journal.
pub const VOID_WORD: usize = 9;
/// The words of the head at which the two [`Synced`] begin, which are written in turn.
pub const SYNCED_WORDS: [usize; 2] = [10, 13];
/// The word of a chunk that holds its [`Filled`] state when it was closed; zero before.
pub const SEAL_WORD: usize = 5;
/// Words of the head that its checksum covers. The run is not among them: it changes alone, in one store.
const HEAD_CHECKED: usize = 5;
/// The word of the head that holds the checksum.
const HEAD_CHECKSUM: usize = 6;

const HEAD_MAGIC: u64 = u64::from_le_bytes(*b"flowJRNL");
const CHUNK_MAGIC: u64 = u64::from_le_bytes(*b"flowJCHK");

const LOCATION_BITS: u32 = 42;
/// Number of units of flash that locations can address, each for a small and for a large item: 32 TiB.
pub const LOCATION_UNITS: u64 = 1 << (LOCATION_BITS - 1);
/// Low bits of a generation that a [`Record::Dead`] keeps.
pub const GENERATION_BITS: u32 = 18;
const SEGMENT_BITS: u32 = 28;
/// Segment numbers are lower than this.
pub const SEGMENT_LIMIT: u64 = 1 << SEGMENT_BITS;
const CHUNK_BITS: u32 = 28;
const PAYLOAD_BITS: u32 = 60;
/// Versions are lower than this: a [`Record::KeyDead`] has no more bits for one.
pub const VERSION_LIMIT: u64 = 1 << PAYLOAD_BITS;

/// Fewest words of a chunk.
const MIN_CHUNK_WORDS: usize = 1 << 10;
/// Fewest words of a chunk for each partition.
const WORDS_PER_PARTITION: usize = 128;
/// Fewest chunks of a journal.
pub const MIN_CHUNKS: usize = 8;

/// Returns the words of a chunk of an image with this many partitions.
pub fn chunk_words(partitions: u32) -> usize {
    (partitions as usize * WORDS_PER_PARTITION).max(MIN_CHUNK_WORDS)
}

/// Returns the bytes of the shortest journal that a new image with this many partitions can be given.
pub fn least_bytes(partitions: u32) -> u64 {
    8 * (HEAD_WORDS + 2 * MIN_CHUNKS * chunk_words(partitions)) as u64
}

/// Returns the bytes of the shortest journal with which an image with this many partitions can be opened.
pub fn usable_bytes(partitions: u32) -> u64 {
    8 * (HEAD_WORDS + MIN_CHUNKS * chunk_words(partitions)) as u64
}

/// Returns whether a file that begins with these bytes is a journal of any format, or a blank file that was to become one.
pub fn is_journal(beginning: &[u8]) -> bool {
    let magic = HEAD_MAGIC.to_le_bytes();
    let is_blank = beginning.iter().all(|&byte| byte == 0);
    let is_cut = magic.starts_with(beginning);
    is_blank || is_cut || beginning.starts_with(&magic)
}

/// The head of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The image it belongs to.
    pub image: u64,
    /// Words of a chunk.
    pub chunk_words: u64,
    /// Chunks of the ring.
    pub chunks: u64,
    /// The last run that has used it.
    pub run: u64,
}

impl Head {
    /// Returns the words to store, in this order, so that a half-written head reads as damaged, not as a foreign file.
    pub fn encode(&self) -> [u64; HEAD_CHECKSUM + 1] {
        let mut words = [
            HEAD_MAGIC,
            JOURNAL_FORMAT,
            self.image,
            self.chunk_words,
            self.chunks,
            self.run,
            0,
        ];
        words[HEAD_CHECKSUM] = checksum(&words[..HEAD_CHECKED]);
        words
    }

    /// Reads a head; `None` if all words are zero.
    ///
    /// # Errors
    /// [`FormatError`] if the words are not the head of a journal of this format.
    pub fn decode(words: &[u64; HEAD_CHECKSUM + 1]) -> Result<Option<Self>, FormatError> {
        if words.iter().all(|&word| word == 0) {
            return Ok(None);
        }
        if words[0] != HEAD_MAGIC {
            return Err(FormatError::Magic);
        }
        // The format of a head that a crash left half written may be missing: its checksum fails.
        if words[1] != JOURNAL_FORMAT && words[1] != 0 {
            return Err(FormatError::Version {
                found: words[1] as u32,
                expected: JOURNAL_FORMAT as u32,
            });
        }
        if words[HEAD_CHECKSUM] != checksum(&words[..HEAD_CHECKED]) {
            return Err(FormatError::Checksum);
        }
        Ok(Some(Self {
            image: words[2],
            chunk_words: words[3],
            chunks: words[4],
            run: words[5],
        }))
    }
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The image that the chunk belongs to.
    pub image: u64,
    /// The chunk's sequence number, from 1.
    pub sequence: u64,
    /// Segments opened before the chunk was begun have lower sequence numbers.
    pub next_segment: u64,
}

impl ChunkHeader {
    /// Returns the words to store.
    pub fn encode(&self) -> [u64; CHUNK_HEADER_WORDS] {
        let mut words = [0; CHUNK_HEADER_WORDS];
        words[..4].copy_from_slice(&[CHUNK_MAGIC, self.image, self.sequence, self.next_segment]);
        words[4] = checksum(&words[..4]);
        words
    }

    /// Reads a header; `None` if it is not valid.
    pub fn decode(words: &[u64; CHUNK_HEADER_WORDS]) -> Option<Self> {
        let valid = words[0] == CHUNK_MAGIC && words[4] == checksum(&words[..4]);
        valid.then_some(Self {
            image: words[1],
            sequence: words[2],
            next_segment: words[3],
        })
    }
}

fn checksum(words: &[u64]) -> u64 {
    u64::from(append_checksum(0, words))
}

fn append_checksum(checksum: u32, words: &[u64]) -> u32 {
    crc32c::crc32c_append(checksum, words.as_bytes())
}

/// Fill state of a chunk: its next free word, and the checksum of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    next: u32,
    checksum: u32,
}

impl Filled {
    /// State of a chunk without records.
    pub const EMPTY: Self = Self {
        next: CHUNK_HEADER_WORDS as u32,
        checksum: 0,
    };

    /// Returns the number of the next free word of the chunk.
    pub fn next(&self) -> usize {
        self.next as usize
    }

    /// Adds words that have been appended to the chunk.
    pub fn append(&mut self, words: &[u64]) {
        self.next += words.len() as u32;
        self.checksum = append_checksum(self.checksum, words);
    }

    /// Returns the word to store.
    pub fn encode(self) -> u64 {
        u64::from(self.next) << 32 | u64::from(self.checksum)
    }

    /// Decodes a word; `None` if it is no fill state.
    pub fn decode(word: u64) -> Option<Self> {
        let (next, checksum) = ((word >> 32) as u32, low(word, 32) as u32);
        (next >= Self::EMPTY.next).then_some(Self { next, checksum })
    }

    /// Returns the records among the words behind a chunk's header, if they match the checksum.
    pub fn records<'a>(&self, words: &'a [u64]) -> Option<&'a [u64]> {
        let records = words.get(..self.next() - CHUNK_HEADER_WORDS)?;
        (append_checksum(0, records) == self.checksum).then_some(records)
    }
}

/// Progress of a sync: every record before it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synced {
    /// Sequence number of the chunk that was being filled; earlier chunks were closed.
    pub sequence: u64,
    /// Fill state of that chunk.
    pub filled: Filled,
}

impl Synced {
    /// Words that it takes in the journal's head.
    pub const WORDS: usize = 3;

    /// Returns the words to store.
    pub fn encode(self) -> [u64; Self::WORDS] {
        let words = [self.sequence, self.filled.encode()];
        [words[0], words[1], checksum(&words)]
    }

    /// Decodes the words; `None` if they are blank or half written.
    pub fn decode(words: &[u64; Self::WORDS]) -> Option<Self> {
        let filled = Filled::decode(words[1])?;
        (words[2] == checksum(&words[..2])).then_some(Self {
            sequence: words[0],
            filled,
        })
    }

    /// Returns whether this sync got further than `other`.
    pub fn is_beyond(&self, other: &Self) -> bool {
        (self.sequence, self.filled.next) > (other.sequence, other.filled.next)
    }
}

/// Encodes a Unix second: a checksum above the second.
pub fn encode_clock(second: u32) -> u64 {
    checksum(&[u64::from(second)]) << 32 | u64::from(second)
}

/// Decodes the word of [`encode_clock`]. Returns 0 for a word that is still zero.
///
/// # Errors
/// [`FormatError::Checksum`].
pub fn decode_clock(word: u64) -> Result<u32, FormatError> {
    let second = low(word, 32) as u32;
    if word == 0 || word == encode_clock(second) {
        Ok(second)
    } else {
        Err(FormatError::Checksum)
    }
}

/// A journal record: it declares items dead or a segment retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The item at a packed location, in one generation of its segment.
    Dead {
        /// The packed location.
        location: u64,
        /// Sequence number of the segment; its low bits are kept.
        generation: u64,
    },
    /// Every item of one generation of a segment.
    SegmentDead {
        /// The segment's number.
        segment: u32,
        /// The segment's sequence number.
        generation: u64,
    },
    /// Every copy of a key hash with a lower version, in any segment and from any run.
    KeyDead {
        /// The hash; its low bits are lost.
        hash: u64,
        /// Copies with lower versions are dead.
        version: u64,
    },
    /// Every item of one generation of a segment that may have had an entry that an index without keys has lost.
    EntryLost {
        /// The segment's number.
        segment: u32,
        /// The segment's sequence number; its low bits are kept.
        generation: u64,
        /// The entry's [mark](crate::hashed::entry_mark).
        mark: u32,
    },
    /// Ends the [`KeyDead`](Self::KeyDead) of this hash and version: other records declare its copies dead one by one.
    KeyLocated {
        /// The hash; its low bits are lost.
        hash: u64,
        /// The version that the record had.
        version: u64,
    },
    /// A segment that is out of use for good.
    Retired {
        /// The number of the segment on its flash.
        segment: u32,
    },
    /// Every item of a partition with a lower version. Applies only if it is read in the chunk it was appended to: a
    /// power cut may leave the words of an earlier chunk in the place of a new one.
    Cutoff {
        /// The partition.
        partition: u32,
        /// The version.
        version: u64,
        /// Sequence number of the chunk; its low bits are kept.
        chunk: u64,
    },
    /// Everything, from a Unix second on. Applies only if it is read in the chunk it was appended to.
    FlushAt {
        /// The second.
        deadline: u32,
        /// Sequence number of the chunk; its low bits are kept.
        chunk: u64,
        /// Whether the deadline that this one replaces had come: a partition without a cutoff record since then had nothing to
        /// flush, or its record is lost.
        replaces_come: bool,
    },
}

/// The words of a record: one or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    words: [u64; 2],
    len: usize,
}

impl Encoded {
    /// Returns the words of the record.
    pub fn words(&self) -> &[u64] {
        &self.words[..self.len]
    }
}

impl Record {
    /// Encodes the record.
    pub fn encode(&self) -> Encoded {
        // Kind and payload of the first word, and of the second word if there is one.
        let (first, second) = match *self {
            Self::Dead {
                location,
                generation,
            } => {
                debug_assert!(location < 1 << LOCATION_BITS);
                let generation = low(generation, GENERATION_BITS);
                ((1, generation << LOCATION_BITS | location), None)
            }
            Self::SegmentDead {
                segment,
                generation,
            } => {
                let segment = low(u64::from(segment), SEGMENT_BITS);
                let first = (2, segment << 32 | generation >> 32);
                (first, Some((8, low(generation, 32))))
            }
            Self::KeyDead { hash, version } => {
                debug_assert!(version < VERSION_LIMIT);
                ((3, hash >> 4), Some((9, low(version, PAYLOAD_BITS))))
            }
            Self::EntryLost {
                segment,
                generation,
                mark,
            } => {
                let segment = low(u64::from(segment), SEGMENT_BITS);
                let first = (11, segment << 32 | low(generation, 32));
                (first, Some((12, u64::from(mark))))
            }
            Self::KeyLocated { hash, version } => {
                ((13, hash >> 4), Some((14, low(version, PAYLOAD_BITS))))
            }
            Self::Retired { segment } => ((4, u64::from(segment)), None),
            Self::Cutoff {
                partition,
                version,
                chunk,
            } => {
                let partition = u64::from(partition) << 48;
                let first = (5, partition | kept_chunk(chunk) << 20 | version >> 48);
                (first, Some((6, low(version, 48))))
            }
            Self::FlushAt {
                deadline,
                chunk,
                replaces_come,
            } => {
                let kind = if replaces_come { 10 } else { 7 };
                let payload = kept_chunk(chunk) << 32 | u64::from(deadline);
                ((kind, payload), None)
            }
        };
        let word = |(kind, payload): (u64, u64)| kind << PAYLOAD_BITS | payload;
        Encoded {
            words: [word(first), second.map_or(0, word)],
            len: 1 + usize::from(second.is_some()),
        }
    }

    /// Decodes the first record of `words`, and returns it with the number of words it took. Skips a zero word. Also skips a
    /// record whose second word is missing: its append was not complete, no sync covered it, or it is left over from an earlier
    /// chunk.
    pub fn decode(words: &[u64]) -> (Option<Self>, usize) {
        let Some(&word) = words.first() else {
            return (None, 0);
        };
        let payload = low(word, PAYLOAD_BITS);
        // Returns the payload of the second word, if its kind belongs to that of the first.
        let second = |kind: u64| {
            let word = words.get(1).filter(|&&word| word >> PAYLOAD_BITS == kind)?;
            Some(low(*word, PAYLOAD_BITS))
        };
        let record = match word >> PAYLOAD_BITS {
            1 => Self::Dead {
                location: low(payload, LOCATION_BITS),
                generation: payload >> LOCATION_BITS,
            },
            4 => Self::Retired {
                segment: payload as u32,
            },
            kind @ (7 | 10) => Self::FlushAt {
                deadline: low(payload, 32) as u32,
                chunk: payload >> 32,
                replaces_come: kind == 10,
            },
            kind => {
                let record = match kind {
                    2 => second(8).map(|rest| Self::SegmentDead {
                        segment: (payload >> 32) as u32,
                        generation: low(payload, 32) << 32 | low(rest, 32),
                    }),
                    3 => second(9).map(|version| Self::KeyDead {
                        hash: payload << 4,
                        version,
                    }),
                    11 => second(12).map(|mark| Self::EntryLost {
                        segment: (payload >> 32) as u32,
                        generation: low(payload, 32),
                        mark: mark as u32,
                    }),
                    13 => second(14).map(|version| Self::KeyLocated {
                        hash: payload << 4,
                        version,
                    }),
                    5 => second(6).map(|rest| Self::Cutoff {
                        partition: (payload >> 48) as u32,
                        version: low(payload, 16) << 48 | low(rest, 48),
                        chunk: kept_chunk(payload >> 20),
                    }),
                    _ => None,
                };
                return (record, 1 + usize::from(record.is_some()));
            }
        };
        (Some(record), 1)
    }
}

/// Returns whether `kept`, the low bits of a generation in a [`Record::Dead`] or [`Record::EntryLost`], are those of `sequence`.
pub fn is_generation(kept: u64, sequence: u64) -> bool {
    low(kept, GENERATION_BITS) == low(sequence, GENERATION_BITS)
}

/// Returns the part of a chunk's sequence number that a [`Record::FlushAt`] or [`Record::Cutoff`] keeps.
pub fn kept_chunk(sequence: u64) -> u64 {
    low(sequence, CHUNK_BITS)
}

/// Returns the part of a hash that a [`Record::KeyDead`] keeps.
pub fn kept_hash(hash: u64) -> u64 {
    hash >> 4 << 4
}

fn low(value: u64, bits: u32) -> u64 {
    value & (u64::MAX >> (64 - bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_record() -> impl Strategy<Value = Record> {
        prop_oneof![
            (0u64..1 << 42, 0u64..1 << 18).prop_map(|(location, generation)| Record::Dead {
                location,
                generation
            }),
            (0u32..1 << 28, any::<u64>()).prop_map(|(segment, generation)| Record::SegmentDead {
                segment,
                generation
            }),
            (any::<u64>(), 0..VERSION_LIMIT).prop_map(|(hash, version)| Record::KeyDead {
                hash: kept_hash(hash),
                version,
            }),
            (any::<u64>(), 0..VERSION_LIMIT).prop_map(|(hash, version)| Record::KeyLocated {
                hash: kept_hash(hash),
                version,
            }),
            (0u32..1 << 28, 0..1u64 << 32, any::<u32>()).prop_map(|(segment, generation, mark)| {
                Record::EntryLost {
                    segment,
                    generation,
                    mark,
                }
            }),
            (0u32..1 << 28).prop_map(|segment| Record::Retired { segment }),
            (0u32..1 << 12, any::<u64>(), 0..1u64 << CHUNK_BITS).prop_map(
                |(partition, version, chunk)| Record::Cutoff {
                    partition,
                    version,
                    chunk
                }
            ),
            (any::<u32>(), 0..1u64 << CHUNK_BITS, any::<bool>()).prop_map(
                |(deadline, chunk, replaces_come)| Record::FlushAt {
                    deadline,
                    chunk,
                    replaces_come
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn records_come_back(records in proptest::collection::vec(any_record(), 0..20)) {
            let words: Vec<u64> = records
                .iter()
                .flat_map(|record| record.encode().words().to_vec())
                .collect();
            prop_assert!(words.iter().all(|&word| word != 0));
            let (mut at, mut read) = (0, Vec::new());
            while at < words.len() {
                let (record, len) = Record::decode(&words[at..]);
                read.extend(record);
                at += len;
            }
            prop_assert_eq!(read, records);
        }

        #[test]
        fn half_a_record_is_none(record in any_record()) {
            let words = record.encode();
            if let [first, _] = words.words() {
                prop_assert_eq!(Record::decode(&[*first]), (None, 1));
                prop_assert_eq!(Record::decode(&[*first, 0]), (None, 1));
            }
        }

        #[test]
        fn any_words_decode(words in proptest::collection::vec(any::<u64>(), 0..20)) {
            let mut at = 0;
            while at < words.len() {
                let (_, len) = Record::decode(&words[at..]);
                prop_assert!(len > 0);
                at += len;
            }
        }
    }

    #[test]
    fn heads_and_headers_come_back() {
        let head = Head {
            image: 7,
            chunk_words: 8192,
            chunks: 16,
            run: 3,
        };
        assert_eq!(Head::decode(&head.encode()), Ok(Some(head)));
        assert_eq!(Head::decode(&[0; 7]), Ok(None));
        let header = ChunkHeader {
            image: 7,
            sequence: 9,
            next_segment: 11,
        };
        assert_eq!(ChunkHeader::decode(&header.encode()), Some(header));
        for word in 0..5 {
            let mut torn = header.encode();
            torn[word] ^= 1;
            assert_eq!(ChunkHeader::decode(&torn), None, "word {word}");
        }
        for word in (0..7).filter(|&word| word != 5) {
            let mut torn = head.encode();
            torn[word] ^= 1;
            assert!(Head::decode(&torn).is_err(), "word {word}");
        }
        for stored in 1..7 {
            let mut half = head.encode();
            half[stored..].fill(0);
            let decoded = Head::decode(&half);
            assert!(decoded.is_err(), "{stored} words");
            assert_ne!(decoded, Err(FormatError::Magic), "{stored} words");
        }
    }
}
