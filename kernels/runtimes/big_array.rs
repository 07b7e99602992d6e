//! big_array: one large array in Rust, as everybody allocates it or on huge pages; random reads of single bytes, timed.
//! The contract is that of big_array.c. No crate: madvise(2) is in the C library that std links.
use std::alloc::{alloc, handle_alloc_error, Layout};
use std::ffi::c_void;
use std::time::Instant;

const BATCHES: usize = 9;
const ACCESSES: u64 = 1 << 20;

// [recipe]
extern "C" {
    fn madvise(start: *mut c_void, bytes: usize, advice: i32) -> i32;
}
const MADV_HUGEPAGE: i32 = 14;

fn huge_array(bytes: usize) -> &'static mut [u8] {
    let layout = Layout::from_size_align(bytes, 2 << 20).unwrap();
    unsafe {
        let start = alloc(layout); // freed, if ever, by dealloc() with the same layout
        if start.is_null() {
            handle_alloc_error(layout);
        }
        if madvise(start.cast(), bytes, MADV_HUGEPAGE) != 0 {
            std::process::exit(3);
        }
        start.write_bytes(1, bytes); // the first write comes after the advice
        std::slice::from_raw_parts_mut(start, bytes)
    }
}
// [end]

// [pool]
extern "C" {
    fn mmap(at: *mut c_void, bytes: usize, protection: i32, flags: i32, file: i32, offset: i64) -> *mut c_void;
}
const PROT_READ_WRITE: i32 = 1 | 2;
const MAP_PRIVATE_ANONYMOUS_HUGETLB_2MB: i32 = 0x2 | 0x20 | 0x40000 | 21 << 26; // bytes: a multiple of 2 MiB

fn pool_array(bytes: usize) -> &'static mut [u8] {
    unsafe {
        let start = mmap(std::ptr::null_mut(), bytes, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_HUGETLB_2MB, -1, 0);
        if start as isize == -1 {
            std::process::exit(3);
        }
        start.cast::<u8>().write_bytes(1, bytes);
        std::slice::from_raw_parts_mut(start.cast(), bytes)
    }
}
// [end]

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let bytes: usize = arguments.get(2).and_then(|text| text.parse().ok()).unwrap_or(0);
    let array = match (arguments.get(1).map(String::as_str), bytes) {
        (Some("plain"), 1..) => vec![1u8; bytes].leak(),
        (Some("huge"), 1..) => huge_array(bytes),
        (Some("pool"), 1..) => pool_array(bytes),
        _ => std::process::exit(2),
    };
    let (mut x, mut sum, mut batch_ns) = (88172645463325252u64, 0u64, Vec::new());
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for _ in 0..ACCESSES {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            sum += u64::from(array[(((x >> 32) * (bytes as u64 >> 12) >> 32) << 12 | (x & 4095)) as usize]);
        }
        batch_ns.push(begin.elapsed().as_nanos());
    }
    println!(
        "{{\"language\": \"rust\", \"variant\": \"{}\", \"array_bytes\": {}, \"address\": {}, \"accesses\": {}, \"sum\": {}, \"batch_ns\": {:?}}}",
        arguments[1], bytes, array.as_ptr() as usize, ACCESSES, sum, batch_ns
    );
    std::io::stdin().read_line(&mut String::new()).ok();
}
