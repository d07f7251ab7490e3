//! The clock of a turn of the loop.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use super::*;
use crate::clock::TimeSource;
use crate::driver::tests::only_member;
use crate::front::Waiting;
use crate::tls::CurrentTls;

/// A clock that shows zero while the socket or the mailbox has something unread, and one
/// afterwards.
struct Witness {
    /// The node's end of a connection.
    socket: TcpStream,
    mailbox: Arc<Mailbox<Post>>,
}

impl std::fmt::Debug for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Witness")
    }
}

impl TimeSource for Witness {
    fn nanos(&self) -> u64 {
        let is_unread = self.socket.peek(&mut [0]).is_ok() || self.mailbox.is_filled();
        u64::from(!is_unread)
    }
}

#[test]
fn the_clock_is_read_after_the_sockets_and_the_mailbox() {
    for (is_sent, is_posted) in [(true, false), (false, true)] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (ours, _) = listener.accept().expect("there is one");
        ours.set_nonblocking(true).expect("a socket option");
        let poll = Poll::new().expect("a poll");
        let mailbox = Arc::new(mailbox(&poll).expect("a waker"));
        let socket = ours.try_clone().expect("a file descriptor");
        let clock = Clock::manual(Arc::new(Witness { socket, mailbox: Arc::clone(&mailbox) }));
        let registry = poll.registry().try_clone().expect("a registry");
        let mailboxes = vec![Arc::clone(&mailbox)];
        let mut event_loop = EventLoop {
            poll,
            conns: Conns::new(registry, CurrentTls::default(), b"", mailboxes, 0),
            driver: only_member(&clock, true),
            mailbox,
            listener: None,
            client_listener: None,
            clients: Clients::new(0, None, Vec::new(), Arc::<Waiting>::default(), Arc::default()),
            clock,
            spin: Duration::ZERO,
            disk: None,
        };
        event_loop.conns.accepted(mio::net::TcpStream::from_std(ours));
        if is_sent {
            peer.write_all(b"hello").expect("there is room");
        }
        if is_posted {
            assert!(event_loop.mailbox.post(Post::Done).is_ok());
        }
        let mut events = Events::with_capacity(8);
        while is_sent && !events.iter().any(mio::event::Event::is_readable) {
            event_loop.poll_for(&mut events, Duration::from_secs(20));
            assert!(!events.is_empty(), "no event within 20 s");
        }
        assert_eq!(event_loop.clock.now(), Instant::ZERO, "there is something to read");
        let now = event_loop.receive(&events, &mut Vec::new());
        assert_eq!(now, Instant::from_nanos(1), "sent {is_sent}, posted {is_posted}");
    }
}
