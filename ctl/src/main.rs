//! The program `gtctl`; its code is the library of the same name.

fn main() -> std::process::ExitCode {
    gtctl::main()
}
