//! A backend needs only a line in the registry: the stub backend computes correct results in threads and in processes.

use crate::support::Gtd;
use gt_ops::Op;

#[test]
fn a_registered_backend_computes_in_threads_and_in_processes() {
    let gtd = Gtd::start(&["--workers", "stub:1,proc-stub:1,cpu:1", "--memory", "48M"]);
    let workers = gtd.status().workers;
    let named: Vec<(&str, &str)> = workers.iter().map(|w| (w.name.as_str(), w.kind.as_str())).collect();
    assert_eq!(named, [("stub:0", "stub"), ("stub:1", "stub"), ("cpu:2", "cpu")]);
    drop(gtd);
    for workers in ["stub:1", "proc-stub:1"] {
        let gtd = Gtd::start(&["--workers", workers, "--memory", "16M"]);
        let mut client = gtd.client();
        let (two, three) = (client.full(&[4], 2.0), client.full(&[4], 3.0));
        let product = client.binary(Op::Mul, two, three);
        let sum = client.binary(Op::Add, product, two);
        assert_eq!(client.fetch_f32(sum, 4).unwrap(), [8.0; 4], "{workers}");
    }
}
