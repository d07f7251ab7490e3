//! Which names a list or a watch may show.

use std::fmt;
use std::sync::Arc;

/// Which names may be shown, asked of each name while leases are looked at.
///
/// What is not shown must not count either: neither towards the length of a page nor towards what a
/// slow watcher missed. So the filter is asked where names are found, and not afterwards.
#[derive(Clone)]
pub struct Filter(Option<Arc<Shows>>);

type Shows = dyn Fn(&str) -> bool + Send + Sync;

impl Filter {
    /// Shows every name.
    pub const ALL: Self = Self(None);

    /// Shows the names for which `shows` is true. It is called on the shards' threads, so it must
    /// not block.
    pub fn new(shows: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(shows)))
    }

    pub(crate) fn shows(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|shows| shows(name))
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Filter" } else { "Filter::ALL" })
    }
}
