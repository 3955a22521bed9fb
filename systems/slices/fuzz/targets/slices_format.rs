//! The decoders of slices: any bytes decode to an error or to a value that they encode. Damage of one to
//! three bits to valid bytes is detected wherever the format promises it.
#![no_main]

use flowstone_slices::encoding::filter::{
    FILTER_BIT_WORDS, FILTER_PAGE_BITS, FILTER_PAGE_WORDS, FilterPage, FilterPageState, filter_word,
};
use flowstone_slices::encoding::log::{FilterHead, LogCount, Pointer, PointerOwner};
use flowstone_slices::encoding::lsh::{
    LshOwn, LshPage, StoredVectors, VECTOR_HEAD_BYTES, seal_vector, verify_vector,
};
use flowstone_slices::encoding::map::{
    MOST_KEY_BYTES, MOST_RECORD_BYTES, RECORD_ALIGN_BYTES, RECORD_HEAD_BYTES, Record,
    RecordAddress, seal_number, unseal_number,
};
use flowstone_slices::encoding::table::{
    BitPage, EntryPage, PageIdentity, SliceKind, SliceSuperblock,
};
use libfuzzer_sys::fuzz_target;

const PAGE_BYTES: usize = 4096;

fuzz_target!(|input: &[u8]| {
    superblock(input);
    page(input);
    shapes(input);
    words(input);
    vector(input);
    filter_page(input);
    record(input);
    address(input);
    number(input);
});

fn word(input: &[u8], at: usize) -> u64 {
    let bytes = input.get(at..).unwrap_or_default();
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(word)
}

fn superblock(input: &[u8]) {
    let _ = SliceSuperblock::decode(input);
    let mut page = vec![0; PAGE_BYTES];
    let len = input.len().min(64);
    let mut sound = SliceSuperblock::new(SliceKind::Lsh);
    sound.instance = word(input, 0).into();
    sound.partitions = (word(input, 8) as u32).into();
    sound.own = [16, 24, 32, 40].map(|at| word(input, at).into());
    sound.encode(&mut page);
    assert_eq!(SliceSuperblock::decode(&page), Ok(sound));
    assert_eq!(LshOwn::decode(sound.own).encode()[..3], sound.own[..3]);
    let damaged = word(input, len) as usize % (8 * 116);
    page[damaged / 8] ^= 1 << (damaged % 8);
    assert!(SliceSuperblock::decode(&page).is_err(), "bit {damaged}");
}

fn page(input: &[u8]) {
    let identity = PageIdentity {
        instance: word(input, 0),
        partition: word(input, 8) as u32,
        page: word(input, 12) as u32,
        generation: word(input, 16) as u32,
    };
    let _ = identity.verify(input);
    let mut page = vec![0; PAGE_BYTES];
    let len = input.len().min(PAGE_BYTES);
    page[..len].copy_from_slice(&input[..len]);
    let floor = word(input, 20) as u32;
    identity.seal(floor, &mut page);
    assert_eq!(identity.verify(&page), Ok(floor));
    let damaged = word(input, 24) as usize % (8 * PAGE_BYTES);
    page[damaged / 8] ^= 1 << (damaged % 8);
    assert!(identity.verify(&page).is_err(), "bit {damaged}");
}

/// Checks that the parts of a page lie within the page, whatever shape is chosen.
fn shapes(input: &[u8]) {
    let page_bytes = PAGE_BYTES * (1 + word(input, 0) as usize % 16);
    let number = |at: usize, most: u64| (word(input, at) % (most + 1)) as usize;
    let incarnations = number(4, 5_000);
    if let Some(page) = BitPage::of(page_bytes, incarnations) {
        assert!(page.slice(page.slots - 1).end <= page_bytes);
    }
    if let Some(page) = LshPage::of(page_bytes, incarnations) {
        assert!(page.filter(incarnations - 1).end <= page_bytes);
        assert!(page.count(incarnations - 1) < page.bucket(0).start);
    }
    let (slots, entries) = (number(8, 70), number(12, 70));
    let incarnations = incarnations.clamp(1, 4_096);
    if let Some(page) = EntryPage::of(page_bytes, incarnations, slots, entries) {
        assert!(page.filter(incarnations - 1).end <= page_bytes);
        assert!(page.entry(page.entries() - 1).end <= page.filter(0).start);
    }
}

fn words(input: &[u8]) {
    let any = word(input, 0);
    let owner = PointerOwner {
        instance: word(input, 8),
        partition: word(input, 16) as u32,
        drive: word(input, 20) as u32,
    };
    if let Ok(pointer) = Pointer::decode(any, owner) {
        assert_eq!(pointer.encode(owner), any);
    }
    let pointer = Pointer {
        generation: word(input, 24) as u32,
        region: word(input, 28) as u32 >> 8,
    };
    let sound = pointer.encode(owner);
    assert_eq!(Pointer::decode(sound, owner), Ok(pointer));
    let bits = [32, 33, 34].map(|at| 1_u64 << (word(input, at) % 64));
    let wrong = bits.iter().fold(sound, |word, bit| word ^ bit);
    assert!(Pointer::decode(wrong, owner).is_err(), "{bits:?}");
    assert_eq!(FilterHead::decode(any).encode(), any);
    assert_eq!(LogCount::decode(any).encode(), any);
    assert_eq!(StoredVectors::decode(any).encode(), any);
}

fn vector(input: &[u8]) {
    let (instance, id) = (word(input, 0), word(input, 8));
    let _ = verify_vector(instance, id, input);
    let mut record = [&[0; VECTOR_HEAD_BYTES], input].concat();
    seal_vector(instance, id, &mut record);
    assert_eq!(verify_vector(instance, id, &record), Ok(input));
    let damaged = word(input, 16) as usize % (8 * record.len());
    record[damaged / 8] ^= 1 << (damaged % 8);
    assert!(
        verify_vector(instance, id, &record).is_err(),
        "bit {damaged}"
    );
}

fn filter_page(input: &[u8]) {
    let page = FilterPage {
        instance: word(input, 0),
        partition: word(input, 8) as u32,
        generation: word(input, 12) as u32,
        page: word(input, 16) as u32,
    };
    let mut words = vec![0; FILTER_PAGE_WORDS];
    for (nth, to) in words.iter_mut().enumerate() {
        *to = word(input, 20 + 8 * nth);
    }
    let _ = page.state(&words);
    let check = page.check(&words[..FILTER_BIT_WORDS]);
    words[FILTER_BIT_WORDS] = page.check_word(check);
    assert_eq!(page.state(&words), FilterPageState::Sound(check));
    // Sets one more bit, and checks the states that a crash between the stores leaves.
    let bit = word(input, 1) as usize % FILTER_PAGE_BITS;
    let at = filter_word(bit);
    let more = words[at] | 1 << (bit % 64);
    let after = check ^ FilterPage::change(at, more ^ words[at]);
    words[FILTER_BIT_WORDS] = page.changing_word(check, after);
    assert_eq!(page.state(&words), FilterPageState::Sound(check));
    words[at] = more;
    assert_eq!(page.state(&words), FilterPageState::Sound(after));
    words[FILTER_BIT_WORDS] = page.check_word(after);
    let mut wrong = words.clone();
    let bits = [2, 5, 9].map(|at| word(input, at) as usize % FILTER_PAGE_BITS);
    for bit in bits {
        wrong[filter_word(bit)] ^= 1 << (bit % 64);
    }
    assert_ne!(
        page.state(&wrong),
        FilterPageState::Sound(after),
        "{bits:?}"
    );
}

/// Checks records of a map: the lengths in any bytes stay within those bytes, and a record that is damaged or
/// lies elsewhere does not decode.
fn record(input: &[u8]) {
    let (instance, position) = (word(input, 0), word(input, 8));
    if let Ok(found) = Record::decode(1, 4096, input) {
        let mut again = vec![0; found.len()];
        found.encode(1, 4096, &mut again);
        assert_eq!(Record::decode(1, 4096, &again), Ok(found));
        assert!(again.len() <= input.len());
    }
    let (epoch, key_bytes) = (word(input, 16) as u32, word(input, 20) as usize);
    let body = input.get(24..).unwrap_or_default();
    let (key, value) = body.split_at(key_bytes % (body.len().min(MOST_KEY_BYTES) + 1));
    let sound = Record {
        epoch,
        key,
        value: (key_bytes & 1 << 31 == 0).then_some(value),
    };
    let len = sound.len();
    assert!(len >= RECORD_HEAD_BYTES && len.is_multiple_of(RECORD_ALIGN_BYTES));
    // The bytes behind the record belong to the next record.
    let mut bytes = [&vec![0; len], input].concat();
    sound.encode(instance, position, &mut bytes[..len]);
    assert_eq!(Record::decode(instance, position, &bytes), Ok(sound));
    assert!(Record::decode(instance, position ^ 1 << (epoch % 64), &bytes).is_err());
    assert!(Record::decode(instance, position, &bytes[..len - 1]).is_err());
    // The head may name any lengths, whether or not the checksum matches those bytes.
    bytes[4..8].copy_from_slice(&epoch.to_le_bytes());
    bytes[20..22].copy_from_slice(&key_bytes.to_le_bytes()[..2]);
    let _ = Record::decode(instance, position, &bytes);
    sound.encode(instance, position, &mut bytes[..len]);
    let damaged = word(input, 17) as usize % (8 * len);
    bytes[damaged / 8] ^= 1 << (damaged % 8);
    let found = Record::decode(instance, position, &bytes);
    assert!(found.is_err(), "bit {damaged}");
}

/// Checks addresses of records: a word decodes to an address before the log's end or to none, and an encoded
/// address decodes to itself.
fn address(input: &[u8]) {
    let align = RECORD_ALIGN_BYTES as u64;
    let (any, end) = (word(input, 0), word(input, 8));
    if let Some(found) = RecordAddress::decode(any, end) {
        assert!(found.position <= end && found.position.is_multiple_of(align));
        assert!(found.bytes <= MOST_RECORD_BYTES);
        assert_eq!(found.encode(), any);
    }
    let behind = word(input, 16) % ((1 << 52) - align);
    let sound = RecordAddress {
        position: end.saturating_sub(behind) / align * align,
        bytes: word(input, 24) as usize % (MOST_RECORD_BYTES + 1) / RECORD_ALIGN_BYTES
            * RECORD_ALIGN_BYTES,
    };
    assert_eq!(RecordAddress::decode(sound.encode(), end), Some(sound));
}

/// Checks sealed numbers: a word decodes to a number or an error, and damage of one or two bits to a sealed
/// number is detected.
fn number(input: &[u8]) {
    let (any, salt) = (word(input, 0), word(input, 8) as u8);
    if let Ok(found) = unseal_number(any, salt) {
        assert_eq!(seal_number(found, salt), any);
    }
    let number = word(input, 9) >> 8;
    let sound = seal_number(number, salt);
    assert_eq!(unseal_number(sound, salt), Ok(number));
    let bits = [17, 18].map(|at| 1_u64 << (word(input, at) % 64));
    let wrong = bits.iter().fold(sound, |word, bit| word ^ bit);
    assert_eq!(unseal_number(wrong, salt).is_ok(), wrong == sound);
}
