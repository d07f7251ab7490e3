//! The executor of a simulation: polls the tasks that were woken, in order. A task lives in the
//! process of a host and stands still with it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::world::At;

struct Task {
    host: usize,
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
}

struct Woken(Mutex<BTreeSet<u32>>);

struct TaskWaker {
    task: u32,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.woken.0.lock().expect("no thread panics while it has the lock").insert(self.task);
    }
}

/// The timer of tasks, in true time.
#[derive(Default)]
pub(crate) struct Timer {
    now: Cell<At>,
    polled: Cell<u32>,
    alarms: RefCell<BTreeSet<(At, u32)>>,
}

impl Timer {
    pub(crate) const fn now(&self) -> At {
        self.now.get()
    }

    pub(crate) async fn sleep(&self, span: Duration) {
        let until = self.now.get() + span.as_nanos() as u64;
        poll_fn(|_| {
            if self.now.get() >= until {
                return Poll::Ready(());
            }
            self.alarms.borrow_mut().insert((until, self.polled.get()));
            Poll::Pending
        })
        .await;
    }

    /// The output of a future, or `None` if it took longer than this and was dropped.
    pub(crate) async fn within<T>(&self, span: Duration, of: impl Future<Output = T>) -> Option<T> {
        let (mut of, mut sleep) = (pin!(of), pin!(self.sleep(span)));
        poll_fn(|context| {
            if let Poll::Ready(output) = of.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            sleep.as_mut().poll(context).map(|()| None)
        })
        .await
    }
}

pub(crate) struct Tasks {
    list: BTreeMap<u32, Task>,
    woken: Arc<Woken>,
    pub(crate) timer: Rc<Timer>,
    count: u32,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        let woken = Arc::new(Woken(Mutex::default()));
        Self { list: BTreeMap::new(), woken, timer: Rc::default(), count: 0 }
    }

    /// The number of the next task.
    pub(crate) const fn next_id(&self) -> u32 {
        self.count
    }

    pub(crate) fn spawn(&mut self, host: usize, future: impl Future<Output = ()> + 'static) {
        let task = self.count;
        self.count += 1;
        let waker = Waker::from(Arc::new(TaskWaker { task, woken: Arc::clone(&self.woken) }));
        waker.wake_by_ref();
        self.list.insert(task, Task { host, future: Box::pin(future), waker });
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The process that they lived in is gone.
    pub(crate) fn end_of(&mut self, host: usize) {
        self.list.retain(|_, task| task.host != host);
    }

    pub(crate) fn next_at(&self) -> Option<At> {
        self.timer.alarms.borrow().first().map(|(at, _)| *at)
    }

    /// Polls the tasks that can go on at this time.
    pub(crate) fn run(&mut self, now: At, is_paused: impl Fn(usize) -> bool) {
        self.timer.now.set(now);
        while self.next_at().is_some_and(|at| at <= now) {
            let rung = self.timer.alarms.borrow_mut().pop_first();
            let task = rung.map(|(_, task)| task);
            self.woken.0.lock().expect("no thread panics while it has the lock").extend(task);
        }
        let mut still = BTreeSet::new();
        loop {
            let next =
                self.woken.0.lock().expect("no thread panics while it has the lock").pop_first();
            let Some(id) = next else { break };
            let Some(task) = self.list.get_mut(&id) else { continue };
            if is_paused(task.host) {
                still.insert(id);
                continue;
            }
            self.timer.polled.set(id);
            let mut context = Context::from_waker(&task.waker);
            if task.future.as_mut().poll(&mut context).is_ready() {
                self.list.remove(&id);
            }
        }
        self.woken.0.lock().expect("no thread panics while it has the lock").extend(still);
    }
}
