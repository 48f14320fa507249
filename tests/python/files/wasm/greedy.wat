;; A guest that goes on from a prompt with the most likely tokens, which are bytes, and prints 12 of them.
;; Its exit status is the first error.
(module
  (import "wasi_ephemeral_nn" "load_by_name" (func $load_by_name (param i32 i32 i32) (result i32)))
  (import "wasi_ephemeral_nn" "init_execution_context" (func $init (param i32 i32) (result i32)))
  (import "wasi_ephemeral_nn" "set_input" (func $set_input (param i32 i32 i32) (result i32)))
  (import "wasi_ephemeral_nn" "compute" (func $compute (param i32) (result i32)))
  (import "wasi_ephemeral_nn" "get_output" (func $get_output (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "gpt2")
  ;; Results of calls are at 8, the graph and the context at 16 and 20, the tokens at 1024, the logits at 4096.
  ;; The tensor is at 32: its dimensions (one, at 64), its type (4, int32), its data (at 1024).
  (data (i32.const 32) "\40\00\00\00\01\00\00\00\04\00\00\00\00\04\00\00")
  ;; The bytes to print: one at a time, at 80.
  (data (i32.const 72) "\50\00\00\00\01\00\00\00")
  (data (i32.const 64) "\03\00\00\00")
  (data (i32.const 1024) "t\00\00\00h\00\00\00e\00\00\00")

  (func $check (param $error i32)
    (if (local.get $error) (then (call $exit (local.get $error)))))

  (func $most_likely (param $count i32) (result i32)
    (local $token i32) (local $best i32)
    (loop $next
      (if (f32.gt (f32.load offset=4096 (i32.shl (local.get $token) (i32.const 2)))
                  (f32.load offset=4096 (i32.shl (local.get $best) (i32.const 2))))
        (then (local.set $best (local.get $token))))
      (local.set $token (i32.add (local.get $token) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $token) (local.get $count))))
    (local.get $best))

  (func (export "_start")
    (local $length i32) (local $token i32)
    (call $check (call $load_by_name (i32.const 0) (i32.const 4) (i32.const 16)))
    (call $check (call $init (i32.load (i32.const 16)) (i32.const 20)))
    (loop $next
      (local.set $length (i32.load (i32.const 64)))
      (i32.store (i32.const 48) (i32.shl (local.get $length) (i32.const 2)))
      (call $check (call $set_input (i32.load (i32.const 20)) (i32.const 0) (i32.const 32)))
      (call $check (call $compute (i32.load (i32.const 20))))
      (call $check (call $get_output (i32.load (i32.const 20)) (i32.const 0)
                                     (i32.const 4096) (i32.const 4096) (i32.const 8)))
      (local.set $token (call $most_likely (i32.shr_u (i32.load (i32.const 8)) (i32.const 2))))
      (i32.store offset=1024 (i32.shl (local.get $length) (i32.const 2)) (local.get $token))
      (i32.store (i32.const 64) (i32.add (local.get $length) (i32.const 1)))
      (i32.store8 (i32.const 80) (local.get $token))
      (call $check (call $fd_write (i32.const 1) (i32.const 72) (i32.const 1) (i32.const 8)))
      (br_if $next (i32.lt_u (local.get $length) (i32.const 14))))))
