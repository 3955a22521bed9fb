//! Marks of other programs at the beginning of a device: file systems, volumes, partition tables.

/// Name, offset in bytes and mark of each format.
const MARKS: [(&str, usize, &[u8]); 22] = [
    ("an ext2, ext3 or ext4 file system", 0x438, b"\x53\xef"),
    ("an XFS file system", 0, b"XFSB"),
    ("a Btrfs file system", 0x1_0040, b"_BHRfS_M"),
    ("an F2FS file system", 0x400, b"\x10\x20\xf5\xf2"),
    ("a bcachefs file system", 0x1018, BCACHEFS),
    ("a ReiserFS file system", 0x1_0034, b"ReIsEr"),
    ("a JFS file system", 0x8000, b"JFS1"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a ZFS volume", 0x2_0000, b"\x0c\xb1\xba\x00"),
    ("a SquashFS file system", 0, b"hsqs"),
    ("an ISO 9660 file system", 0x8001, b"CD001"),
    ("an encrypted volume (LUKS)", 0, b"LUKS\xba\xbe"),
    ("a volume of LVM", 0x200, b"LABELONE"),
    ("a member of a RAID", 0x1000, b"\xfc\x4e\x2b\xa9"),
    ("a member of a RAID", 0, b"\xfc\x4e\x2b\xa9"),
    ("swap space", 0xff6, b"SWAPSPACE2"),
    ("a disk of a virtual machine", 0, b"QFI\xfb"),
    ("a partition table (GPT)", 0x200, b"EFI PART"),
    ("a partition table (GPT)", 0x1000, b"EFI PART"),
    ("a volume of Ceph", 0, b"bluestore block device\n"),
    ("a partition table or a FAT file system", 0x1fe, b"\x55\xaa"),
];

const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";

/// Returns the file system, volume or partition table that a device with these first bytes holds, if it has a known mark. The
/// first MiB contains every known mark.
pub fn file_system_in(beginning: &[u8]) -> Option<&'static str> {
    let has = |&(_, at, mark): &(&str, usize, &[u8])| {
        beginning
            .get(at..)
            .is_some_and(|from| from.starts_with(mark))
    };
    MARKS.iter().find(|mark| has(mark)).map(|&(what, ..)| what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_write_is_told_from_what_nobody_knows() {
        for (what, at, mark) in MARKS {
            let mut device = vec![0; 1 << 20];
            assert_eq!(file_system_in(&device), None);
            device[at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(file_system_in(&device), Some(what));
            assert_eq!(file_system_in(&device[..at + 1]), None, "{what} is cut");
        }
        assert_eq!(file_system_in(b"somebody's data"), None);
    }
}
