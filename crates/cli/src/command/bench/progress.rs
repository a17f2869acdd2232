//! How far the measurement is: a bar on a terminal, nothing elsewhere.

use std::{pin::pin, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;

/// The bar moves this often.
const STEP: Duration = Duration::from_millis(100);
const TEMPLATE: &str = "{msg:30} {wide_bar}";

/// The bar of the part that is being measured.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(super) fn new(output: Output, each: Duration) -> Self {
        let target = if output.is_quiet() || output.is_json() {
            ProgressDrawTarget::hidden()
        } else {
            // Draws nothing where the standard error is no terminal.
            ProgressDrawTarget::stderr()
        };
        let steps = u64::try_from(each.as_millis() / STEP.as_millis()).unwrap_or(u64::MAX);
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Moves the bar while `work` is under way.
    pub(super) async fn during<T>(&self, name: &str, work: impl Future<Output = T>) -> T {
        self.bar.reset();
        self.bar.set_message(name.to_owned());
        let mut work = pin!(work);
        loop {
            match tokio::time::timeout(STEP, &mut work).await {
                Ok(done) => return done,
                Err(_) => self.bar.inc(1),
            }
        }
    }

    pub(super) fn over(&self) {
        self.bar.finish_and_clear();
    }
}
