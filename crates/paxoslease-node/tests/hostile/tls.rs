//! The same through TLS: bytes that are none, and a peer whose certificate is as good as any.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use paxoslease_node::front::{
    Answer, ClientCertificates, ConnId, Desk, FrontEnd, Hint, Instant, Service,
};
use paxoslease_node::{Node, Tls, block_on};
use paxoslease_wire::Hello;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::cell;
use crate::support::{Drops, PROPOSER, Peer, connect, frame, start};

/// An authority, in a folder of its own.
struct Authority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("paxoslease-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("valid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("signed");
        fs::write(folder.join("ca.pem"), issuer.pem()).expect("written");
        Self { folder, issuer }
    }

    fn certify(&self, node: u16) -> Tls {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![Tls::node_name("test", node).expect("a label")]);
        let cert = params.expect("valid").signed_by(&key, &self.issuer).expect("signed");
        let (cert_at, key_at) =
            (self.folder.join(format!("{node}.pem")), self.folder.join(format!("{node}.key")));
        fs::write(&cert_at, cert.pem()).expect("written");
        fs::write(&key_at, key.serialize_pem()).expect("written");
        fs::set_permissions(&key_at, Permissions::from_mode(0o600)).expect("a mode");
        Tls::new(cert_at, key_at, self.folder.join("ca.pem"))
    }

    /// A connection to the first node with a certificate of this authority.
    fn dial(&self, node: u16, address: &str) -> Peer<impl Read + Write + use<>> {
        let files = self.certify(node);
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = vec![CertificateDer::from_pem_file(&files.cert).expect("written above")];
        let key = PrivateKeyDer::from_pem_file(&files.key).expect("written above");
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("ring has it")
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .expect("a pair");
        let name = ServerName::try_from("node-1.test.paxoslease").expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("valid");
        Peer(StreamOwned::<_, TcpStream>::new(connection, connect(address)))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        // A folder left behind in the temporary one does no harm.
        let _left = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn what_is_no_tls_is_hung_up_on_and_counted() {
    let authority = Authority::new("hostile-junk");
    let cell = start(|config| {
        let tls = authority.certify(config.node);
        config.tls(tls)
    });
    let refused = Drops::of("refused");
    // The first bytes of a handshake, of one that goes on with junk, and of none.
    let begun = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3].as_slice();
    let junk = [begun, &[0xaa; 2000]].concat();
    for bytes in
        [begun, &junk, &cell.hello(PROPOSER, 1), &[0xff; 100_000], b"GET / HTTP/1.1\r\n\r\n"]
    {
        let mut stranger = cell.stranger();
        stranger.say(bytes);
        stranger.end();
        stranger.is_hung_up_on();
    }
    refused.wait_for(5);
    cell.serves();
}

#[test]
fn a_certificate_does_not_make_nonsense_of_a_peer_count() {
    let authority = Authority::new("hostile-peer");
    let cell = start(|config| {
        let tls = authority.certify(config.node);
        config.tls(tls)
    });
    let (malformed, refused) = (Drops::of("malformed"), Drops::of("refused"));
    let mut peer = authority.dial(PROPOSER, &cell.addresses[0]);
    peer.say(&cell.hello(PROPOSER, 1));
    assert!(Hello::decode(&peer.hear()).is_ok());
    peer.say(&frame(2, []));
    peer.is_hung_up_on();
    malformed.wait_for(1);
    // As a member, with the certificate of another node.
    let mut liar = authority.dial(PROPOSER, &cell.addresses[0]);
    liar.say(&cell.hello(2, 2));
    liar.is_hung_up_on();
    refused.wait_for(1);
    cell.serves();
}

/// Serves clients by listening to them.
struct Silent;

impl FrontEnd for Silent {
    fn accepted(&mut self, _: &mut Desk<'_>, _: ConnId) {}

    fn received(&mut self, _: &mut Desk<'_>, _: ConnId, bytes: &[u8]) -> usize {
        bytes.len()
    }

    fn writable(&mut self, _: &mut Desk<'_>, _: ConnId) {}

    fn closed(&mut self, _: &mut Desk<'_>, _: ConnId) {}

    fn answered(&mut self, _: &mut Desk<'_>, _: u64, _: Answer) {}

    fn hinted(&mut self, _: &mut Desk<'_>, _: &Hint) {}

    fn tick(&mut self, _: &mut Desk<'_>) {}

    fn flush(&mut self, _: &mut Desk<'_>) {}

    fn next_at(&self) -> Option<Instant> {
        None
    }

    fn leave(&mut self, _: &mut Desk<'_>) {}

    fn is_done(&self) -> bool {
        true
    }
}

#[test]
fn a_client_that_does_not_finish_its_handshake_is_cut_off_and_counted() {
    let authority = Authority::new("hostile-client");
    let refused = Drops::of("tls");
    let bind = || TcpListener::bind("127.0.0.1:0").expect("a port");
    let (peers, clients) = (bind(), bind());
    let [own, address] = [&peers, &clients].map(|it| it.local_addr().expect("bound").to_string());
    let config = cell::config(&[own], 1).shards(1).tls(authority.certify(1));
    let front = Box::new(|_| Box::new(Silent) as Box<dyn FrontEnd>);
    let client_tls = Some(ClientCertificates::Unasked);
    let service = Service { clients: Some(clients), client_tls, front, recorder: None };
    let _node = block_on(Node::start_with(config, Some(peers), service)).expect("starts");
    // One says nothing at all, the other half of a greeting.
    let (mut silent, mut slow) = (Peer(connect(&address)), Peer(connect(&address)));
    assert!(slow.say(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]));
    silent.is_hung_up_on();
    slow.is_hung_up_on();
    refused.wait_for(2);
}
