//! A node and systemd. All else about `serve` is in transcripts.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use crate::support::{Process, free_port, paxoslease, scratch};

#[test]
fn systemd_gets_ready_status_and_stopping_notifications() {
    let folder = scratch("systemd");
    let socket = UnixDatagram::bind(folder.join("notify")).expect("can be made");
    let told = || {
        let mut bytes = [0; 1024];
        let len = socket.recv(&mut bytes).expect("a datagram");
        String::from_utf8(bytes[..len].to_vec()).expect("UTF-8")
    };
    let peer = format!("--peer=1=127.0.0.1:{}", free_port(1));
    let data = folder.join("data");
    let mut command = paxoslease(&["serve", "--node=1", &peer, "--new-cell", "--data-dir"]);
    command
        .arg(&data)
        .args(["--listen-clients=off", "--listen-http=off"])
        .env("NOTIFY_SOCKET", folder.join("notify"));
    let process = Process::run(command);
    assert_eq!(told().trim(), "READY=1");
    let mut status = told();
    while !status.contains("ready; 0 of 0 peers") {
        assert!(status.starts_with("STATUS="), "{status}");
        status = told();
    }
    process.signal(Signal::TERM);
    while told().trim() != "STOPPING=1" {}
    assert_eq!(process.end(), Some(0));
}
