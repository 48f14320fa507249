//! The emulated device finds bugs that a device does not show: each kind is planted in a kernel.
//!
//! AddressSanitizer ends a process at its first finding, and its runtime must be loaded before everything else. So a
//! test of addresses runs itself once more, in a process with that runtime, and reads what that says.

mod bare;

use bare::BareDevice;
use gt_cuda::Driver;
use gt_cuda::driver::Grid;
use gt_cuda::driver::emulated::{EmulatedChecks, is_available};
use std::process::Command;

/// The variable that tells a process that it is the one with AddressSanitizer.
const INSIDE: &str = "GT_TEST_INSIDE";

/// A kernel's source, after the types that kernels use.
fn kernel(body: &str) -> String {
    format!("#include \"types.cuh\"\n{body}")
}

/// The finding of [`EmulatedChecks::Races`] in a launch of so many blocks of so many threads, none if there is none.
fn races(body: &str, blocks: u32, threads: u32, seed: u64) -> Option<String> {
    let device = BareDevice::new(EmulatedChecks::Races, seed);
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        device.run(&kernel(body), "planted", Grid::new(blocks, threads), 4 * 1024, &[]);
    }));
    ran.err().map(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

/// Asserts that the kernel has a race of these words, and none once `mended` takes the place of `broken`.
fn assert_race(body: &str, (broken, mended): (&str, &str), blocks: u32, words: &[&str]) {
    for seed in [0, 1, 2] {
        let found = races(&body.replace("PLANTED", broken), blocks, 64, seed).expect("a race");
        for word in words {
            assert!(found.contains(word), "{word}: {found}");
        }
        assert_eq!(races(&body.replace("PLANTED", mended), blocks, 64, seed), None);
    }
}

#[test]
fn a_missing_barrier_of_the_block_is_a_race() {
    let body = "GT_KERNEL(64) planted(i32 *out) {
        __shared__ i32 shared[64];
        shared[threadIdx.x] = threadIdx.x;
        PLANTED;
        out[threadIdx.x] = shared[63 - threadIdx.x];
        __syncthreads();
        shared[threadIdx.x] = 0;
    }";
    for broken in ["", "__syncwarp()"] {
        assert_race(body, (broken, "__syncthreads()"), 1, &["planted: ", "shared memory"]);
    }
    // A line for each of the two accesses, where binutils are there to find them.
    if Command::new("addr2line").arg("--version").output().is_ok() {
        let found = races(&body.replace("PLANTED", "__syncwarp()"), 1, 64, 0).expect("a race");
        assert!(found.contains("(kernel.cu:"), "{found}");
    }
}

#[test]
fn a_buffer_that_is_overwritten_while_others_read_it_is_a_race() {
    let body = "GT_KERNEL(64) planted(i32 *out) {
        __shared__ i32 shared[64];
        for (int round = 0; round < 3; round++) {
            shared[threadIdx.x] = round;
            __syncthreads();
            out[threadIdx.x] = shared[(threadIdx.x + 40) % 64];
            PLANTED;
        }
    }";
    assert_race(body, ("", "__syncthreads()"), 1, &["a race in shared memory", "reads"]);
}

#[test]
fn a_missing_barrier_of_the_warp_is_a_race_and_one_is_enough() {
    let body = "GT_KERNEL(64) planted(i32 *out) {
        __shared__ i32 shared[64];
        shared[threadIdx.x] = threadIdx.x;
        PLANTED;
        out[threadIdx.x] = shared[threadIdx.x ^ 1];
    }";
    assert_race(body, ("", "__syncwarp()"), 1, &["shared memory"]);
    // A shuffle orders the lanes of its mask alone: halves that exchange nothing are not ordered.
    assert_race(
        body,
        ("__syncwarp(1u << threadIdx.x % 32)", "__shfl_xor_sync(0xffffffffu, 1, 1)"),
        1,
        &["shared memory"],
    );
    assert_race(body, ("", "__syncwarp(3u << threadIdx.x % 32 / 2 * 2)"), 1, &["shared memory"]);
}

#[test]
fn blocks_that_write_one_element_race_unless_they_do_so_atomically() {
    let body = "GT_KERNEL(64) planted(i32 *out) { if (threadIdx.x == 0) PLANTED; }";
    assert_race(body, ("out[0] += 1", "atomicAdd(out, 1)"), 3, &["a race in global memory", "of another block"]);
    assert_race(
        body,
        ("atomicAdd(out, 1); else if (threadIdx.x == 7) out[0] = 1", "atomicAdd(out, 1)"),
        1,
        &["atomically"],
    );
    assert_race(body, ("out[blockIdx.x / 2] = 1", "out[blockIdx.x] = 1"), 2, &["a race in global memory"]);
}

#[test]
fn shared_memory_that_nobody_has_written_is_not_to_be_read() {
    let body = "GT_KERNEL(64) planted(i32 *out) {
        __shared__ i32 shared[64];
        if (threadIdx.x < PLANTED) shared[threadIdx.x] = 1;
        __syncthreads();
        out[blockIdx.x * 64 + threadIdx.x] = shared[threadIdx.x];
    }";
    // A second block is not served by what the first one wrote.
    assert_race(body, ("64 * (1 - blockIdx.x)", "64"), 2, &["that no thread of the block has written"]);
    // Without checks, it is not a number.
    let body = body.replace("i32", "f32").replace("PLANTED", "63");
    let written = BareDevice::new(EmulatedChecks::None, 0).run(&kernel(&body), "planted", Grid::new(1, 64), 256, &[]);
    assert!(f32::from_le_bytes(written[252..].try_into().expect("four bytes")).is_nan());
}

#[test]
fn a_copy_that_is_not_waited_for_is_a_race() {
    let body = "#include \"mma.cuh\"
    GT_KERNEL(64) planted(u8 *out) {
        alignas(16) __shared__ u8 shared[64 * 16];
        copy_behind(shared_address(shared + threadIdx.x * 16), out + threadIdx.x * 16, true);
        PLANTED;
        __syncthreads();
        out[2048 + threadIdx.x] = shared[1008 - threadIdx.x * 16];
        __syncthreads();
        wait_for_copies();
    }";
    assert_race(body, ("", "wait_for_copies()"), 1, &["shared memory"]);
}

#[test]
fn results_that_depend_on_the_order_of_threads_or_blocks_differ_between_seeds() {
    let last = |index: &str| kernel(&format!("GT_KERNEL(64) planted(i32 *out) {{ out[0] = {index}; }}"));
    for (index, last_in_order) in [("threadIdx.x", 63), ("blockIdx.x", 31)] {
        let run = |seed| {
            let device = BareDevice::new(EmulatedChecks::None, seed);
            device.run(&last(index), "planted", Grid::new(32, 64), 4, &[])[0]
        };
        assert_eq!(run(0), last_in_order);
        assert_eq!(run(7), run(7), "a seed is reproducible");
        assert!((1..8).any(|seed| run(seed) != last_in_order), "{index}");
    }
}

/// The kernels of the tests of addresses, with which the process inside runs: name, body, words of the finding.
const ADDRESSES: [(&str, &str, &str); 7] = [
    ("past_a_tensor", "out[0] = in[threadIdx.x + 1]", "heap-buffer-overflow"),
    ("before_a_tensor", "out[threadIdx.x] = in[i64(threadIdx.x) - 1]", "heap-buffer-overflow"),
    ("writes_past_a_tensor", "out[1024 + threadIdx.x] = 1", "heap-buffer-overflow"),
    ("past_shared_memory", "__shared__ i32 shared[64]; (&shared[0])[threadIdx.x + 1] = 1", "global-buffer-overflow"),
    (
        "past_a_local_array",
        "i32 local[4] = {1, 2, 3, 4}; out[threadIdx.x] = local[threadIdx.x]",
        "out of bounds for type 'int [4]'",
    ),
    (
        "misaligned",
        "struct alignas(16) Four { i32 at[4]; }; *(Four *)out = *(const Four *)(in + 1)",
        "misaligned address",
    ),
    ("freed", "out[threadIdx.x] = in[threadIdx.x]", "heap-use-after-free"),
];

/// Runs the kernel of this name in a process with AddressSanitizer: whether that succeeds, and its output.
fn inside(test: &str, name: &str) -> (bool, String) {
    let library = Command::new("g++").arg("-print-file-name=libasan.so").output().expect("g++ runs").stdout;
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, name)
        .env("LD_PRELOAD", String::from_utf8(library).expect("a path").trim())
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .output()
        .expect("this program runs");
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn accesses_outside_of_tensors_and_arrays_end_the_process() {
    if let Ok(name) = std::env::var(INSIDE) {
        let (_, body, _) = ADDRESSES.iter().find(|(known, ..)| *known == name).expect("a kernel of the list");
        let device = BareDevice::new(EmulatedChecks::Addresses, 0);
        let source = kernel(&format!("GT_KERNEL(64) planted(i32 *out, const i32 *in) {{ {body}; }}"));
        let elements = device.put(&[1; 256]);
        if name == "freed" {
            let stream = device.driver.new_stream().expect("a stream");
            // SAFETY: `put` has allocated it. That the kernel uses it afterwards is what is to be found.
            unsafe { device.driver.free(elements, stream) }.expect("memory of this device");
            device.driver.synchronize(stream).expect("a stream that ends");
        }
        device.run(&source, "planted", Grid::new(1, 64), 4096, &[elements]);
        return;
    }
    for (name, _, words) in ADDRESSES {
        let (succeeds, said) = inside("accesses_outside_of_tensors_and_arrays_end_the_process", name);
        assert!(!succeeds && said.contains(words) && said.contains("kernel.cu:"), "{name}: {said}");
    }
}

#[test]
fn accesses_inside_pass_and_barriers_hide_nothing() {
    if let Ok(part) = std::env::var(INSIDE) {
        let device = BareDevice::new(EmulatedChecks::Addresses, 3);
        let body = "GT_KERNEL(64) planted(i32 *out, const i32 *in, i64 length) {
            __shared__ i32 shared[64];
            i32 local[4] = {1, 2, 3, 4};
            shared[threadIdx.x] = in[threadIdx.x];
            __syncthreads();
            i32 sum = 0;
            for (i64 i = 0; i < length; i++) sum += *(&local[0] + i);
            out[threadIdx.x] = shared[63 - threadIdx.x] + sum;
        }";
        let elements = device.put(&[0; 256]);
        let length = if part == "right" { 4 } else { 5 };
        let written = device.run(&kernel(body), "planted", Grid::new(4, 64), 256, &[elements, length]);
        assert_eq!(written, [10i32.to_le_bytes(); 64].concat());
        return;
    }
    let test = "accesses_inside_pass_and_barriers_hide_nothing";
    let (succeeds, said) = inside(test, "right");
    assert!(succeeds, "{said}");
    let (succeeds, said) = inside(test, "wrong");
    assert!(!succeeds && said.contains("stack-buffer-overflow"), "{said}");
}

#[test]
fn a_machine_without_a_compiler_runs_none_of_this() {
    assert!(is_available(), "g++ compiles the kernels of these tests: apt install g++");
}
