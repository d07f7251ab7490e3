//! Which files a node accepts, and until when.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use paxoslease_tls::rcgen::{
    self, BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};

use super::*;
use crate::board::{Board, Disk, ShardStatus};
use crate::config::Config;
use crate::driver::tests::published;
use crate::tls::{CurrentTls, TlsError};

fn refusal(cert: &Path, key: &Path, ca: &Path) -> String {
    Tls::new(cert, key, ca).check(CELL, 1, Role::Member).expect_err("refused").to_string()
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_the_reason() {
    let folder = Authority::new();
    let (cert_pem, key_pem) = issue(&folder, 1);
    let cert = folder.file("cert.pem", &cert_pem);
    let key = folder.file("key.pem", &key_pem);
    let ca = folder.folder.join("ca.pem");
    let other_key = folder.file("other-key.pem", &issue(&folder, 2).1);
    let cut = folder.file("cut.pem", &key_pem[..key_pem.len() / 2]);
    let hollow =
        folder.file("hollow.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let hollow_key = folder
        .file("hollow-key.pem", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let missing = folder.folder.join("missing.pem");

    for (text, words) in [
        (refusal(&missing, &key, &ca), ["missing.pem", "cannot read"]),
        (refusal(&cert, &missing, &ca), ["missing.pem", "cannot read"]),
        (refusal(&cert, &key, &missing), ["missing.pem", "cannot read"]),
        (refusal(&key, &key, &ca), ["key.pem", "no certificate"]),
        (refusal(&cert, &key, &key), ["key.pem", "no certificate"]),
        (refusal(&cert, &cert, &ca), ["cert.pem", "no private key"]),
        (refusal(&cert, &cut, &ca), ["cut.pem", "no END line"]),
        (refusal(&hollow, &key, &ca), ["hollow.pem", "cannot be used"]),
        (refusal(&cert, &key, &hollow), ["hollow.pem", "cannot be used"]),
        (refusal(&cert, &hollow_key, &ca), ["hollow-key.pem", "cannot be used"]),
        (refusal(&cert, &other_key, &ca), ["other-key.pem", "is not the key of the certificate"]),
    ] {
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
    assert!(Tls::new(cert, key, ca).check(CELL, 1, Role::Member).is_ok());
}

#[test]
fn a_key_that_others_can_read_is_refused_with_what_to_run() {
    let ca = Authority::new();
    let tls = files(&ca, |_| {});
    let current = load(&tls, 1);
    fs::set_permissions(&tls.key, Permissions::from_mode(0o644)).expect("a mode");
    let refused = tls.check(CELL, 1, Role::Member).expect_err("refused").to_string();
    assert!(refused.contains("its mode is 0644") && refused.contains("run: chmod 6"), "{refused}");
    let reloaded = current.reload(&tls, (node(1), Role::Member)).expect_err("refused");
    assert!(matches!(reloaded, TlsError::KeyExposed { .. }), "{reloaded}");
}

/// The files of node 1, with a certificate that `change` has changed.
fn files(ca: &Authority, change: impl FnOnce(&mut CertificateParams)) -> Tls {
    let [cert, key, ca] = ca.files(&[&dns_name(CELL, 1, Role::Member)], change);
    Tls::new(cert, key, ca)
}

#[test]
fn a_certificate_that_peers_would_refuse_is_not_accepted() {
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let ca = Authority::new();
    let refusal = |change: fn(&mut CertificateParams)| {
        let refused = files(&ca, change).check(CELL, 1, Role::Member).expect_err("refused");
        assert!(matches!(refused, TlsError::Refused { .. }), "{refused}");
        refused.to_string()
    };
    for (text, words) in [
        (refusal(|it| it.not_after = rcgen::date_time_ymd(2020, 1, 1)), ["ended", "days ago"]),
        (refusal(|it| it.not_before = rcgen::date_time_ymd(4000, 1, 1)), ["begins in", "clock"]),
        (refusal(|it| it.extended_key_usages = vec![ServerAuth]), ["both", "client"]),
        (refusal(|it| it.extended_key_usages = vec![ClientAuth]), ["both", "server"]),
    ] {
        assert!(text.contains(".pem: ") && words.iter().all(|word| text.contains(word)), "{text}");
    }
    assert!(files(&ca, |_| {}).check(CELL, 1, Role::Member).is_ok());
}

#[test]
fn a_certificate_of_no_authority_in_the_file_is_refused() {
    // One authority has another name. The other has the same name, but another key.
    for other in [Authority::named("another"), Authority::new()] {
        let ca = Authority::new();
        let mut files = files(&ca, |_| {});
        assert!(files.check(CELL, 1, Role::Member).is_ok());
        files.ca = ca.file("other-ca", &other.issuer.pem());
        let text = files.check(CELL, 1, Role::Member).expect_err("refused").to_string();
        assert!(text.contains("other-ca has signed it") && text.contains("keep both"), "{text}");
        files.ca = ca.file("both", &[other.issuer.pem(), ca.issuer.pem()].concat());
        assert!(files.check(CELL, 1, Role::Member).is_ok());
    }
}

#[test]
fn the_certificate_of_another_node_is_refused_by_its_name() {
    let ca = Authority::new();
    let files = files(&ca, |_| {});
    for id in [0, 2, 11, u16::MAX] {
        let refused = files.check(CELL, id, Role::Member).expect_err("refused");
        let expected = dns_name(CELL, id, Role::Member);
        assert!(matches!(&refused, TlsError::OtherNode { name, .. } if *name == expected));
    }
    let refused = files.check("other", 1, Role::Member).expect_err("refused").to_string();
    assert!(refused.contains("not valid for node-1.other.paxoslease"), "{refused}");
}

#[test]
fn a_certificate_for_every_node_of_the_cell_is_refused() {
    let ca = Authority::new();
    let wildcard = "*.test.paxoslease".try_into().expect("a name");
    let add = |params: &mut CertificateParams| {
        params.subject_alt_names.push(SanType::DnsName(wildcard));
    };
    let refused = files(&ca, add).check(CELL, 1, Role::Member).expect_err("refused").to_string();
    assert!(refused.contains("valid for every node of the cell"), "{refused}");
}

#[test]
fn a_cell_that_certificates_cannot_name_is_refused() {
    let (longest, too_long) = ("x".repeat(63), "x".repeat(64));
    for cell in ["a", "prod-eu", "7", &longest] {
        let name = format!("node-1.{cell}.paxoslease");
        assert_eq!(Tls::node_name(cell, 1, Role::Member).expect("a label"), name);
    }
    for cell in ["", "Prod", "prod eu", "prod_eu", "a.b", "-a", "a-", "*", "\u{e9}", &too_long] {
        let refused = Tls::node_name(cell, 1, Role::Member).expect_err(cell);
        assert!(matches!(refused, TlsError::CellName(_)), "{refused}");
    }
}

/// When peers begin to refuse node 1, in seconds since 1970.
fn not_after(files: &Tls) -> u64 {
    load(files, 1).not_after().expect("it uses TLS").as_secs()
}

fn seconds(year: i32) -> u64 {
    rcgen::date_time_ymd(year, 1, 1).unix_timestamp().unsigned_abs()
}

#[test]
fn a_chain_ends_with_the_first_of_its_certificates() {
    let ca = Authority::new();
    let own_end = |params: &mut CertificateParams| {
        params.not_after = rcgen::date_time_ymd(2500, 1, 1);
    };
    assert_eq!(not_after(&files(&ca, own_end)), seconds(2500));

    for (between_ends, end) in [(2600, 2500), (2400, 2400)] {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "between");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_after = rcgen::date_time_ymd(between_ends, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let between = params.signed_by(&key, &ca.issuer).expect("a certificate").pem();
        let mut own = CertificateParams::new([dns_name(CELL, 1, Role::Member)]).expect("a name");
        own_end(&mut own);
        let own_key = KeyPair::generate().expect("a key");
        let own = own.signed_by(&own_key, &Issuer::new(params, key)).expect("a certificate").pem();
        let files = Tls::new(
            ca.file("chain", &[own, between].concat()),
            ca.file("key", &own_key.serialize_pem()),
            ca.folder.join("ca.pem"),
        );
        assert_eq!(not_after(&files), seconds(end));
    }
}

#[test]
fn the_end_of_the_current_certificate_is_published() {
    let ca = Authority::new();
    let until = |year| files(&ca, |params| params.not_after = rcgen::date_time_ymd(year, 1, 1));
    let settings = Config::new("test", 1).peer(1, "127.0.0.1:1").ephemeral().settings();
    let settings = settings.expect("valid");
    let end_of = |tls: &CurrentTls| {
        let board = Board::new(&settings, true, Disk::default(), tls.clone());
        let all = published(|| board.show(Default::default(), 0, ShardStatus::default()));
        all.get("paxoslease_certificate_not_after_seconds").map(|value| *value as u64)
    };
    assert_eq!(end_of(&CurrentTls::default()), None, "there is no certificate");
    let tls = load(&until(2500), 1);
    assert_eq!(end_of(&tls), Some(seconds(2500)));
    tls.reload(&until(2020), (node(1), Role::Member)).expect_err("it has ended");
    assert_eq!(end_of(&tls), Some(seconds(2500)));
    tls.reload(&until(2600), (node(1), Role::Member)).expect("good files");
    assert_eq!(end_of(&tls), Some(seconds(2600)));
}
