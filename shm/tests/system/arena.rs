//! Arenas: the daemon's checked access and the client's allocator, over real segments.

use gt_shm::arena::{LARGE_BYTES_MIN, NeedMore};
use gt_shm::segment::PAGE_BYTES;
use gt_shm::{Arena, ArenaAllocator, Error};

const MIB: u64 = 1 << 20;

/// An allocator over arenas of these lengths, and the daemon's views of them.
fn arenas(lengths: &[u64]) -> (ArenaAllocator, Vec<Arena>) {
    let allocator = ArenaAllocator::new();
    let daemon = lengths.iter().enumerate().map(|(number, &bytes)| {
        let (arena, fd) = Arena::create(bytes).unwrap();
        assert_eq!(allocator.add(fd, arena.len()).unwrap(), number as u32);
        arena
    });
    let daemon = daemon.collect();
    (allocator, daemon)
}

#[test]
fn bytes_go_both_ways() {
    let (allocator, daemon) = arenas(&[MIB]);
    let mut block = allocator.alloc(1000).unwrap();
    let upload: Vec<u8> = (0..1000).map(|n| n as u8).collect();
    block.write(&upload);
    let mut seen = vec![0; 1000];
    daemon[block.arena() as usize].copy_in(block.offset(), &mut seen).unwrap();
    assert_eq!(seen, upload);

    daemon[0].copy_out(block.offset() + 10, b"result").unwrap();
    block.read(&mut seen);
    assert_eq!(&seen[10..16], b"result");
    // SAFETY: this test has one thread, and no code below writes the block.
    assert_eq!(unsafe { block.as_slice() }, seen);
}

#[test]
fn the_daemon_checks_every_range() {
    let (arena, _fd) = Arena::create(MIB).unwrap();
    assert_eq!(arena.range(0, MIB).unwrap().len() as u64, MIB);
    assert!(arena.range(MIB, 0).unwrap().is_empty());
    for (offset, len) in [(0, MIB + 1), (MIB, 1), (MIB + 1, 0), (u64::MAX, 1), (1, u64::MAX)] {
        let range = arena.range(offset, len);
        assert!(matches!(range, Err(Error::OutOfBounds { .. })), "{offset}+{len}: {range:?}");
    }
    assert!(arena.copy_in(MIB - 1, &mut [0; 2]).is_err());
    assert!(arena.copy_out(u64::MAX - 1, &[0; 4]).is_err());
}

#[test]
fn a_range_outlives_its_arena_and_splits_for_threads() {
    let (arena, _fd) = Arena::create(MIB).unwrap();
    let range = arena.range(100, 10_000).unwrap();
    drop(arena);
    std::thread::scope(|scope| {
        for (number, chunk) in range.chunks(3000).enumerate() {
            scope.spawn(move || chunk.copy_out(&vec![number as u8 + 1; chunk.len()]));
        }
    });
    let (front, back) = range.split_at(9000);
    let mut bytes = vec![0; 9000];
    front.copy_in(&mut bytes);
    assert_eq!((bytes[0], bytes[2999], bytes[3000], bytes[8999]), (1, 1, 2, 3));
    assert_eq!(back.len(), 1000);
    assert_eq!(back.as_ptr(), front.as_ptr().wrapping_add(9000));
}

#[test]
fn blocks_are_aligned_and_apart() {
    let (allocator, _daemon) = arenas(&[8 * MIB]);
    let sizes = [0, 1, 63, 64, 65, 4096, LARGE_BYTES_MIN, LARGE_BYTES_MIN + 1, MIB];
    let blocks: Vec<_> = sizes.iter().map(|&bytes| allocator.alloc(bytes).unwrap()).collect();
    let mut places: Vec<_> = blocks.iter().map(|b| (b.offset(), b.len().max(1) as u64)).collect();
    for (block, &bytes) in blocks.iter().zip(&sizes) {
        assert_eq!(block.len() as u64, bytes);
        let align = if bytes >= LARGE_BYTES_MIN { PAGE_BYTES } else { 64 };
        assert_eq!(block.as_ptr() as usize % align, 0, "{bytes} bytes at {:?}", block.as_ptr());
    }
    places.sort_unstable();
    assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
}

#[test]
fn a_full_allocator_asks_for_more_and_goes_on_with_it() {
    let (allocator, _daemon) = arenas(&[MIB]);
    let all = allocator.alloc(MIB).unwrap();
    let NeedMore { bytes } = allocator.alloc(3 * MIB).unwrap_err();
    assert!(bytes >= 3 * MIB);
    assert!(allocator.alloc(1).is_err());
    assert!(allocator.alloc(u64::MAX).is_err());
    let (arena, fd) = Arena::create(bytes).unwrap();
    allocator.add(fd, arena.len()).unwrap();
    assert_eq!(allocator.alloc(3 * MIB).unwrap().arena(), 1);
    drop(all);
    assert_eq!(allocator.stats().free_extents, 2);
    assert_eq!(allocator.stats().used_bytes, 0);
}

#[test]
fn a_new_arena_of_what_was_needed_always_suffices() {
    for bytes in [1, 64, 65, 5000, LARGE_BYTES_MIN - 1, LARGE_BYTES_MIN, LARGE_BYTES_MIN + 1] {
        let allocator = ArenaAllocator::new();
        let need = allocator.alloc(bytes).unwrap_err();
        let (arena, fd) = Arena::create(need.bytes).unwrap();
        allocator.add(fd, arena.len()).unwrap();
        assert!(allocator.alloc(bytes).is_ok(), "{bytes}");
    }
}

#[test]
fn free_memory_beyond_the_warm_limit_goes_back() {
    let allocator = ArenaAllocator::with_warm_bytes_max(2 * MIB);
    let (arena, fd) = Arena::create(16 * MIB).unwrap();
    allocator.add(fd, arena.len()).unwrap();
    let touch = |bytes: u64| {
        let mut block = allocator.alloc(bytes).unwrap();
        block.write(&vec![7; bytes as usize]);
        block
    };
    let kept = touch(3 * MIB);
    drop(touch(MIB));
    assert_eq!(allocator.stats().warm_bytes, MIB, "a little stays warm");
    drop(touch(8 * MIB));
    let stats = allocator.stats();
    assert!(stats.warm_bytes <= 2 * MIB, "{stats:?}");
    assert_eq!(stats.used_bytes, 3 * MIB);

    drop(touch(MIB));
    allocator.trim(0).unwrap();
    assert_eq!(allocator.stats().warm_bytes, 0);
    // SAFETY: this test has one thread, and no code below writes the block.
    assert!(unsafe { kept.as_slice() }.iter().all(|&byte| byte == 7), "a block keeps its bytes");
}

#[test]
fn threads_share_an_allocator() {
    let (allocator, _daemon) = arenas(&[4 * MIB, 4 * MIB]);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let allocator = allocator.clone();
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..2000_u64 {
                    let bytes = (round * 7919 + u64::from(thread) * 104_729) % 20_000;
                    if let Ok(mut block) = allocator.alloc(bytes) {
                        block.write(&vec![thread; bytes as usize]);
                        held.push(block);
                    }
                    if round % 97 == 0 {
                        allocator.trim(MIB).unwrap();
                    }
                    if held.len() > 20 {
                        let block = held.swap_remove(round as usize % 20);
                        // SAFETY: the allocator gives a block to one thread, and this one does not write it below.
                        assert!(unsafe { block.as_slice() }.iter().all(|&byte| byte == thread));
                    }
                }
            });
        }
    });
    let stats = allocator.stats();
    assert_eq!((stats.used_bytes, stats.free_extents), (0, 2));
}

#[test]
fn a_forked_child_leaves_its_parents_arenas_alone() {
    let (allocator, _daemon) = arenas(&[8 * MIB]);
    let mut block = allocator.alloc(4 * MIB).unwrap();
    block.write(&vec![7; 4 * MIB as usize]);
    let mut copies = Some((block, allocator.clone()));
    // SAFETY: the child takes no lock that another thread could have held at the fork: it drops a block, tries to
    // allocate, and exits without unwinding or running handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let (block, allocator) = copies.take().unwrap();
        drop(block);
        let refused = allocator.alloc(64).is_err() && matches!(allocator.trim(0), Ok(0));
        // SAFETY: `_exit` ends the process without running handlers, so it needs no state of other threads.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` lives through the call, which writes nothing else.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child was refused");
    let (block, allocator) = copies.unwrap();
    // SAFETY: the child has ended, and no code below writes the block.
    assert!(unsafe { block.as_slice() }.iter().all(|&byte| byte == 7));
    assert_eq!(allocator.stats().used_bytes, 4 * MIB);
}
