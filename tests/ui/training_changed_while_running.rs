use ggml::opt::{Sgd, Training};
use ggml::prelude::*;

fn train(training: &mut Training<'_>, sched: &mut Sched) -> ggml::Result<()> {
    let mut run = training.start(sched)?;
    training.set_optimizer(Sgd::default())?;
    run.step()?;
    Ok(())
}

fn main() {
    let _train = train;
}
