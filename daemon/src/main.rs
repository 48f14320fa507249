//! The program `gtd`; its code is the library of the same name.

fn main() -> std::process::ExitCode {
    gtd::main()
}
