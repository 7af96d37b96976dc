//! The logger of this process, which does on each thread what that thread wants.

use std::cell::RefCell;
use std::sync::Once;

type Hook = Box<dyn FnMut(&str)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // Taken out meanwhile: what the hook logs goes nowhere.
        let Ok(Some(mut hook)) = HOOK.try_with(RefCell::take) else { return };
        let line = record.args().to_string();
        // Put back even where it panics.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hook(&line)));
        HOOK.with_borrow_mut(|slot| {
            slot.get_or_insert(hook);
        });
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    }

    fn flush(&self) {}
}

/// Calls `hook` for each line that this thread logs while `f` runs.
pub(crate) fn with_hook<R>(hook: impl FnMut(&str) + 'static, f: impl FnOnce() -> R) -> R {
    struct Unset;
    impl Drop for Unset {
        fn drop(&mut self) {
            HOOK.take();
        }
    }
    static SET: Once = Once::new();
    SET.call_once(|| {
        log::set_logger(&Logger).unwrap();
        // Not what this crate notes at lower levels: what ggml says is what is tested.
        log::set_max_level(log::LevelFilter::Info);
    });
    HOOK.set(Some(Box::new(hook)));
    let _unset = Unset;
    f()
}
