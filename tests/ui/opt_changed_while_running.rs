use ggml::opt::{OptContext, OptGraphs, Sgd};
use ggml::prelude::*;

fn train(opt: &mut OptContext<'_>, graphs: &OptGraphs<'_>, sched: &mut Sched) -> ggml::Result<()> {
    let mut run = opt.alloc(sched, graphs, true)?;
    opt.set_optimizer(Sgd::new())?;
    run.eval(None)?;
    Ok(())
}

fn main() {
    let _train = train;
}
