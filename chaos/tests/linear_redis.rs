//! The control of the linearizability check: one Redis server carries out one command at a time, so
//! whatever the checker rejects here would be an error of the model or of the recording.

use std::time::Duration;

use paxoslease_chaos::linear::report;
use paxoslease_chaos::linear::run::{Faults, LinearOptions, run};

#[test]
fn a_real_redis_is_linearizable() {
    let findings = run(&LinearOptions {
        seed: 1,
        len: Duration::from_secs(60),
        operations: 60_000,
        clients: 12,
        keys: 12,
        operations_per_key: 40,
        max_lease: Duration::from_secs(60),
        beyond: true,
        faults: Faults::None,
        paxoslease: None,
        folder: "not-used".into(),
    });
    let findings = findings.expect("`cargo xtask test --all` installs redis-server");
    assert!(findings.is_clean(), "{}", report::text(&findings));
    assert!(findings.grants > 1000, "{}", report::text(&findings));
}
