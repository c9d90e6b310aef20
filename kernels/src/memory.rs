//! The memory allocator of kernels. With `buffer.rs` and `wide.rs` the only file with `unsafe`.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// The system's allocator, except that large blocks are separate mappings, in huge pages if the system has them.
///
/// The system's allocator keeps freed memory between blocks that are in use: if several threads allocate and free
/// blocks of some MiB, a process holds twice the memory that it uses. A mapping is returned as a whole.
struct LargeBlocks;

/// Minimum size of a block with its own mapping. Pages have up to 8 MiB and the rest of a row or chunk: their memory is
/// soon reused, and a new mapping would cost its page faults, a quarter of the time of reading a table of vectors.
const OWN_BYTES_MIN: usize = 9 << 20;

/// Minimum size of a block after which the system's allocator is to keep freed memory.
const WARM_BYTES_MIN: usize = 1 << 20;
/// Size of the block that the system's allocator has to see for it.
const WARMING_BYTES: usize = 16 << 20;
static IS_WARM: AtomicBool = AtomicBool::new(false);

/// Let the system's allocator see a large block once, which is never touched.
///
/// That of GNU returns memory at the end of a heap as soon as it is twice as long as the largest mapping that was freed.
/// Large blocks bypass it here, so it would return the memory of a piece after each piece, and each piece of the next
/// would cost its page faults again: a third of the time of reading a column of short texts.
#[cold]
fn warm() {
    if !IS_WARM.swap(true, Ordering::Relaxed) {
        let layout = Layout::new::<[u8; WARMING_BYTES]>();
        // SAFETY: the size is not 0; the block is freed with its own layout.
        unsafe {
            let memory = std::hint::black_box(System.alloc(layout)); // a compiler may leave out unused blocks
            if !memory.is_null() {
                System.dealloc(memory, layout);
            }
        }
    }
}

/// A block of `size` bytes that `alloc` obtains from the system's allocator.
fn from_system(size: usize, alloc: impl FnOnce() -> *mut u8) -> *mut u8 {
    if size >= WARM_BYTES_MIN && !IS_WARM.load(Ordering::Relaxed) {
        warm();
    }
    mappings::in_large_pages(alloc(), size)
}

#[global_allocator]
static MEMORY: LargeBlocks = LargeBlocks;

fn is_own(size: usize, alignment: usize) -> bool {
    cfg!(target_os = "linux") && size >= OWN_BYTES_MIN && alignment <= mappings::ALIGNMENT
}

// SAFETY: memory is the system allocator's, or a mapping: its size decides which, and it is freed accordingly.
unsafe impl GlobalAlloc for LargeBlocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_own(layout.size(), layout.align()) {
            true => mappings::take(layout.size(), false),
            // SAFETY: guaranteed by the caller.
            false => from_system(layout.size(), || unsafe { System.alloc(layout) }),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match is_own(layout.size(), layout.align()) {
            true => mappings::take(layout.size(), true),
            // SAFETY: guaranteed by the caller.
            false => from_system(layout.size(), || unsafe { System.alloc_zeroed(layout) }),
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (was_own, will_be) = (is_own(layout.size(), layout.align()), is_own(size, layout.align()));
        if was_own && will_be {
            // SAFETY: a mapping of this size.
            return unsafe { mappings::resize(memory, layout.size(), size) };
        }
        if !was_own && !will_be {
            // SAFETY: guaranteed by the caller.
            return from_system(size, || unsafe { System.realloc(memory, layout, size) });
        }
        // SAFETY: guaranteed by the caller: the size is not 0, and fits the alignment.
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !moved.is_null() {
            // SAFETY: both have at least this size and do not overlap; the old block is not used any more.
            unsafe {
                ptr::copy_nonoverlapping(memory, moved, layout.size().min(size));
                self.dealloc(memory, layout);
            }
        }
        moved
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match is_own(layout.size(), layout.align()) {
            // SAFETY: a mapping of this size that is not used any more.
            true => unsafe { mappings::give_back(memory, layout.size()) },
            // SAFETY: guaranteed by the caller.
            false => unsafe { System.dealloc(memory, layout) },
        }
    }
}

/// Blocks that are mappings, each of the requested size in whole pages. Filling fresh memory costs a page fault per
/// page, so a few freed blocks are kept for the next requests of about the same size.
#[cfg(target_os = "linux")]
mod mappings {
    use rustix::mm::{madvise, mmap_anonymous, mremap, munmap, Advice, MapFlags, MremapFlags, ProtFlags};
    use std::cell::UnsafeCell;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// The smallest page size of any system.
    pub const ALIGNMENT: usize = 4096;
    /// As in numpy: below this, huge pages gain little, and unused memory would count as resident.
    const LARGE_BYTES_MIN: usize = 4 << 20;
    /// The size of a huge page on most systems.
    const HUGE_BYTES: usize = 2 << 20;
    const NUM_SPARES: usize = 8;
    const SPARE_BYTES_MAX: usize = 32 << 20;

    /// A mapping; of length 0 if there is none.
    #[derive(Clone, Copy)]
    struct Block {
        memory: *mut u8,
        length: usize,
    }

    const NO_BLOCK: Block = Block { memory: ptr::null_mut(), length: 0 };

    /// Unused blocks, the oldest first, after the empty slots. No thread waits for them: if the lock is taken, callers
    /// allocate without them, as does a process that was forked meanwhile.
    struct Spares {
        is_taken: AtomicBool,
        blocks: UnsafeCell<[Block; NUM_SPARES]>,
    }

    // SAFETY: `with` admits one thread at a time, and the blocks have no other owner.
    unsafe impl Sync for Spares {}

    static SPARES: Spares =
        Spares { is_taken: AtomicBool::new(false), blocks: UnsafeCell::new([NO_BLOCK; NUM_SPARES]) };

    impl Spares {
        fn with<T>(&self, work: impl FnOnce(&mut [Block; NUM_SPARES]) -> T) -> Option<T> {
            if self.is_taken.swap(true, Ordering::Acquire) {
                return None;
            }
            // SAFETY: only this thread accesses them until the end, and `work` neither allocates nor panics.
            let found = work(unsafe { &mut *self.blocks.get() });
            self.is_taken.store(false, Ordering::Release);
            Some(found)
        }
    }

    fn whole_pages(size: usize) -> usize {
        let page = rustix::param::page_size();
        size.saturating_add(page - 1) & !(page - 1)
    }

    /// A block of this size; null if memory is exhausted.
    pub fn take(size: usize, is_zeroed: bool) -> *mut u8 {
        let length = whole_pages(size);
        let close = length - length / 4..=length.saturating_add(length / 4);
        let spare = SPARES.with(|blocks| {
            let found = blocks.iter().rposition(|block| close.contains(&block.length))?;
            blocks[..=found].rotate_right(1);
            Some(std::mem::replace(&mut blocks[0], NO_BLOCK))
        });
        let Some(Some(block)) = spare else { return fresh(length) };
        // SAFETY: the block now belongs to this call.
        let memory = unsafe { remapped(block, length) };
        if memory.is_null() {
            unmap(block);
        } else if is_zeroed {
            // SAFETY: the mapping has at least this size.
            unsafe { ptr::write_bytes(memory, 0, size) };
        }
        memory
    }

    fn fresh(length: usize) -> *mut u8 {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the system chooses.
        let map = |length| unsafe { mmap_anonymous(ptr::null_mut(), length, access, MapFlags::PRIVATE) };
        match map(length.saturating_add(HUGE_BYTES)) {
            Ok(memory) => aligned(memory.cast(), length),
            Err(_) => match map(length) {
                Ok(memory) => in_large_pages(memory.cast(), length),
                Err(_) => ptr::null_mut(),
            },
        }
    }

    /// Cut both ends off a new mapping of `length` bytes and a huge page more, so that it begins with a huge page:
    /// otherwise up to 2 MiB at each end are pages of 4 KiB, and filling them costs more page faults than all the rest.
    fn aligned(memory: *mut u8, length: usize) -> *mut u8 {
        let skipped = memory.align_offset(HUGE_BYTES);
        let start = memory.wrapping_add(skipped);
        unmap(Block { memory, length: skipped });
        unmap(Block { memory: start.wrapping_add(length), length: HUGE_BYTES - skipped });
        in_large_pages(start, length)
    }

    /// Resize a block, possibly moving it; null, and the block is unchanged, if that is not possible.
    ///
    /// # Safety
    /// The caller is the only user of the block.
    unsafe fn remapped(block: Block, length: usize) -> *mut u8 {
        if block.length == length {
            return block.memory;
        }
        // SAFETY: guaranteed by the caller.
        match unsafe { mremap(block.memory.cast(), block.length, length, MremapFlags::MAYMOVE) } {
            Ok(memory) => in_large_pages(memory.cast(), length),
            Err(_) => ptr::null_mut(),
        }
    }

    /// Resize the block from `before` to `size` bytes, keeping its content; null, and it is unchanged, if memory is
    /// exhausted.
    ///
    /// # Safety
    /// `take` returned the block, and the caller is its only user.
    pub unsafe fn resize(memory: *mut u8, before: usize, size: usize) -> *mut u8 {
        // SAFETY: guaranteed by the caller.
        unsafe { remapped(Block { memory, length: whole_pages(before) }, whole_pages(size)) }
    }

    /// Free a block of this size.
    ///
    /// # Safety
    /// `take` or `resize` returned the block, and it is not used any more.
    pub unsafe fn give_back(memory: *mut u8, size: usize) {
        let block = Block { memory, length: whole_pages(size) };
        if block.length > SPARE_BYTES_MAX / 2 || SPARES.with(|blocks| keep(blocks, block)).is_none() {
            unmap(block);
        }
    }

    /// Keep a block; it replaces the oldest ones if necessary.
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
            // SAFETY: a mapping of that length that is not used any more.
            let _ = unsafe { munmap(block.memory.cast(), block.length) };
        }
    }

    /// Advise the system to back the whole pages of a large block by huge pages. It may ignore the advice.
    pub fn in_large_pages(memory: *mut u8, size: usize) -> *mut u8 {
        if size >= LARGE_BYTES_MIN && !memory.is_null() {
            let page = rustix::param::page_size();
            let skipped = memory.align_offset(page);
            let length = (size - skipped) & !(page - 1);
            // SAFETY: whole pages inside memory that was just allocated; the advice does not change their content.
            let _ = unsafe { madvise(memory.wrapping_add(skipped).cast(), length, Advice::LinuxHugepage) };
        }
        memory
    }
}

/// On this system no block has its own mapping.
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
