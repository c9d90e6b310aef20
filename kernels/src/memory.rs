//! Where the memory of kernels comes from. With `buffer.rs` the only file with `unsafe`.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

/// The system's allocator; large blocks are mappings of their own, in large pages where the system has them.
///
/// The system's allocator keeps what was freed between blocks that are in use: with blocks of some MiB that several
/// threads make and free, a process holds twice what it uses. A mapping is given back as a whole.
struct LargeBlocks;

/// From here on a block is a mapping of its own. Pages have up to 8 MiB: what is freed of these is soon used again, and a
/// new mapping would cost its page faults, a fifth of the time of reading a table.
const OWN_BYTES_MIN: usize = 8 << 20;

#[global_allocator]
static MEMORY: LargeBlocks = LargeBlocks;

fn is_own(size: usize, alignment: usize) -> bool {
    cfg!(target_os = "linux") && size >= OWN_BYTES_MIN && alignment <= mappings::ALIGNMENT
}

// SAFETY: memory is the system allocator's, or a mapping: its size says which, and it is given back in that way.
unsafe impl GlobalAlloc for LargeBlocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_own(layout.size(), layout.align()) {
            true => mappings::take(layout.size(), false),
            // SAFETY: the caller's promise.
            false => mappings::in_large_pages(unsafe { System.alloc(layout) }, layout.size()),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_own(layout.size(), layout.align()) {
            true => mappings::take(layout.size(), true),
            // SAFETY: the caller's promise.
            false => mappings::in_large_pages(unsafe { System.alloc_zeroed(layout) }, layout.size()),
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (was_own, will_be) = (is_own(layout.size(), layout.align()), is_own(size, layout.align()));
        if was_own && will_be {
            // SAFETY: a mapping for so many bytes.
            return unsafe { mappings::resize(memory, layout.size(), size) };
        }
        if !was_own && !will_be {
            // SAFETY: the caller's promise.
            return mappings::in_large_pages(unsafe { System.realloc(memory, layout, size) }, size);
        }
        // SAFETY: the caller's promise: the size is not 0, and fits the alignment.
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !moved.is_null() {
            // SAFETY: both have so many bytes and do not overlap; nobody uses the old ones any more.
            unsafe {
                ptr::copy_nonoverlapping(memory, moved, layout.size().min(size));
                self.dealloc(memory, layout);
            }
        }
        moved
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match is_own(layout.size(), layout.align()) {
            // SAFETY: a mapping for so many bytes, which nobody uses any more.
            true => unsafe { mappings::give_back(memory, layout.size()) },
            // SAFETY: the caller's promise.
            false => unsafe { System.dealloc(memory, layout) },
        }
    }
}

/// Blocks that are mappings, each as long as was asked for, in whole pages. Filling fresh memory costs a page fault for
/// every page, so a few that were given back stay for the next that want about as much.
#[cfg(target_os = "linux")]
mod mappings {
    use rustix::mm::{madvise, mmap_anonymous, mremap, munmap, Advice, MapFlags, MremapFlags, ProtFlags};
    use std::cell::UnsafeCell;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// The smallest page of any system.
    pub const ALIGNMENT: usize = 4096;
    /// As numpy has it: below this large pages gain little, and memory that stays empty would count as resident.
    const LARGE_BYTES_MIN: usize = 4 << 20;
    const NUM_SPARES: usize = 8;
    const SPARE_BYTES_MAX: usize = 32 << 20;

    /// A mapping; of length 0 where there is none.
    #[derive(Clone, Copy)]
    struct Block {
        memory: *mut u8,
        length: usize,
    }

    const NO_BLOCK: Block = Block { memory: ptr::null_mut(), length: 0 };

    /// Blocks that nobody uses, the oldest first, behind the places that are empty. Nobody waits for them: whoever finds them taken does without, as does
    /// a process that was forked meanwhile.
    struct Spares {
        is_taken: AtomicBool,
        blocks: UnsafeCell<[Block; NUM_SPARES]>,
    }

    // SAFETY: `with` lets in one thread at a time, and the blocks are nobody's.
    unsafe impl Sync for Spares {}

    static SPARES: Spares =
        Spares { is_taken: AtomicBool::new(false), blocks: UnsafeCell::new([NO_BLOCK; NUM_SPARES]) };

    impl Spares {
        fn with<T>(&self, work: impl FnOnce(&mut [Block; NUM_SPARES]) -> T) -> Option<T> {
            if self.is_taken.swap(true, Ordering::Acquire) {
                return None;
            }
            // SAFETY: this thread alone has them until the end, and `work` neither allocates nor panics.
            let found = work(unsafe { &mut *self.blocks.get() });
            self.is_taken.store(false, Ordering::Release);
            Some(found)
        }
    }

    fn whole_pages(size: usize) -> usize {
        let page = rustix::param::page_size();
        size.saturating_add(page - 1) & !(page - 1)
    }

    /// A block for so many bytes; null where there is no memory.
    pub fn take(size: usize, is_zeroed: bool) -> *mut u8 {
        let length = whole_pages(size);
        let close = length - length / 4..=length.saturating_add(length / 4);
        let spare = SPARES.with(|blocks| {
            let found = blocks.iter().rposition(|block| close.contains(&block.length))?;
            blocks[..=found].rotate_right(1);
            Some(std::mem::replace(&mut blocks[0], NO_BLOCK))
        });
        let Some(Some(block)) = spare else { return fresh(length) };
        // SAFETY: the block is this call's now.
        let memory = unsafe { remapped(block, length) };
        if memory.is_null() {
            unmap(block);
        } else if is_zeroed {
            // SAFETY: the mapping has so many bytes.
            unsafe { ptr::write_bytes(memory, 0, size) };
        }
        memory
    }

    fn fresh(length: usize) -> *mut u8 {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the system chooses.
        match unsafe { mmap_anonymous(ptr::null_mut(), length, access, MapFlags::PRIVATE) } {
            Ok(memory) => in_large_pages(memory.cast(), length),
            Err(_) => ptr::null_mut(),
        }
    }

    /// A block with another length, perhaps elsewhere; null, and it stays as it is, where that is not possible.
    ///
    /// # Safety
    /// Nobody else uses it.
    unsafe fn remapped(block: Block, length: usize) -> *mut u8 {
        if block.length == length {
            return block.memory;
        }
        // SAFETY: the caller's promise.
        match unsafe { mremap(block.memory.cast(), block.length, length, MremapFlags::MAYMOVE) } {
            Ok(memory) => in_large_pages(memory.cast(), length),
            Err(_) => ptr::null_mut(),
        }
    }

    /// The block of so many bytes with another size, and what was in it; null, and it stays, where there is no memory.
    ///
    /// # Safety
    /// `take` has given it, and nobody else uses it.
    pub unsafe fn resize(memory: *mut u8, before: usize, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { remapped(Block { memory, length: whole_pages(before) }, whole_pages(size)) }
    }

    /// Take back a block of so many bytes.
    ///
    /// # Safety
    /// `take` or `resize` has given it, and nobody uses it any more.
    pub unsafe fn give_back(memory: *mut u8, size: usize) {
        let block = Block { memory, length: whole_pages(size) };
        if block.length > SPARE_BYTES_MAX / 2 || SPARES.with(|blocks| keep(blocks, block)).is_none() {
            unmap(block);
        }
    }

    /// Keep a block, in the place of the oldest ones if need be.
    fn keep(blocks: &mut [Block; NUM_SPARES], block: Block) {
        let mut total: usize = blocks.iter().map(|one| one.length).sum();
        for oldest in blocks.iter_mut() {
            if total + block.length > SPARE_BYTES_MAX {
                total -= oldest.length;
                unmap(*oldest);
                *oldest = NO_BLOCK;
            }
        }
        unmap(blocks[0]);
        blocks.rotate_left(1);
        blocks[NUM_SPARES - 1] = block;
    }

    fn unmap(block: Block) {
        if block.length > 0 {
            // SAFETY: a mapping of that length that nobody uses any more.
            let _ = unsafe { munmap(block.memory.cast(), block.length) };
        }
    }

    /// Advise the system to back the whole pages of large memory by large ones. It may decline: then they are small.
    pub fn in_large_pages(memory: *mut u8, size: usize) -> *mut u8 {
        if size >= LARGE_BYTES_MIN && !memory.is_null() {
            let page = rustix::param::page_size();
            let skipped = memory.align_offset(page);
            let length = (size - skipped) & !(page - 1);
            // SAFETY: whole pages inside of memory that was just allocated; the advice leaves what is in them.
            let _ = unsafe { madvise(memory.wrapping_add(skipped).cast(), length, Advice::LinuxHugepage) };
        }
        memory
    }
}

/// No block is a mapping of its own here.
#[cfg(not(target_os = "linux"))]
mod mappings {
    pub const ALIGNMENT: usize = 0;

    pub fn take(_: usize, _: bool) -> *mut u8 {
        std::ptr::null_mut()
    }

    pub unsafe fn resize(_: *mut u8, _: usize, _: usize) -> *mut u8 {
        std::ptr::null_mut()
    }

    pub unsafe fn give_back(_: *mut u8, _: usize) {}

    pub fn in_large_pages(memory: *mut u8, _: usize) -> *mut u8 {
        memory
    }
}
