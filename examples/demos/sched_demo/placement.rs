//! Chooses the devices, the layers that each holds, and the scheduler's order.

use anyhow::{Result, bail, ensure};
use demos::Shown;
use demos::digits::model::LAYERS;

/// The type of a device, as far as the choice depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A GPU with its own memory.
    Gpu,
    /// A GPU that shares the CPU's memory.
    IntegratedGpu,
    /// A server that this program starts if it is chosen.
    Rpc,
    /// The processor.
    Cpu,
    /// Anything else, such as a BLAS library; used only if it is named.
    Other,
}

/// A device that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// ggml's name of it.
    pub(crate) name: String,
    /// What it is.
    pub(crate) kind: Kind,
}

/// The outcome: indices into the candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The devices that hold layers, in the user's order. A device may occur several times.
    pub(crate) holders: Vec<usize>,
    /// All devices in use, each once, in the scheduler's order: the CPU comes last.
    pub(crate) order: Vec<usize>,
}

impl Placement {
    /// Chooses the devices called `wanted`, or the best accelerator and the CPU.
    ///
    /// # Errors
    /// If a name is unknown, there are more names than layers, or there is no CPU as a fallback.
    pub(crate) fn choose(candidates: &[Candidate], wanted: Option<&[String]>) -> Result<Self> {
        let first = |kind| candidates.iter().position(|c| c.kind == kind);
        let Some(cpu) = first(Kind::Cpu) else {
            bail!("no CPU device was found, but the scheduler needs one: build ggml with its CPU backend")
        };
        let holders = match wanted {
            Some(names) => named(candidates, names)?,
            None => [Kind::Gpu, Kind::IntegratedGpu, Kind::Rpc]
                .into_iter()
                .find_map(first)
                .into_iter()
                .chain([cpu])
                .collect(),
        };
        let mut order = Vec::new();
        for &device in &holders {
            if device != cpu && !order.contains(&device) {
                order.push(device);
            }
        }
        order.push(cpu);
        Ok(Self { holders, order })
    }

    /// The device of each layer: the holders take turns.
    pub(crate) fn of_layers(&self) -> impl Iterator<Item = usize> {
        self.holders.iter().copied().cycle().take(LAYERS.len())
    }
}

fn named(candidates: &[Candidate], names: &[String]) -> Result<Vec<usize>> {
    let mut chosen = Vec::new();
    for name in names {
        // ggml ignores case as well.
        let Some(found) = candidates.iter().position(|c| c.name.eq_ignore_ascii_case(name.trim())) else {
            let known: Vec<_> = candidates.iter().map(|c| c.name.as_str()).collect();
            bail!("there is no device `{}`; --devices takes {}", Shown::name(name), known.join(", "))
        };
        chosen.push(found);
    }
    ensure!(!chosen.is_empty(), "--devices names no device");
    ensure!(
        chosen.len() <= LAYERS.len(),
        "--devices names {} devices, but there are only {} layers to share out",
        chosen.len(),
        LAYERS.len()
    );
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(list: &[(&str, Kind)]) -> Vec<Candidate> {
        list.iter().map(|&(name, kind)| Candidate { name: name.to_owned(), kind }).collect()
    }

    fn choose(candidates: &[Candidate], names: &[&str]) -> Result<Placement> {
        let names: Vec<_> = names.iter().copied().map(str::to_owned).collect();
        Placement::choose(candidates, Some(&names))
    }

    #[test]
    fn default_placement_is_the_best_accelerator_and_the_cpu() {
        let all = candidates(&[("BLAS", Kind::Other), ("CPU", Kind::Cpu), ("RPC0", Kind::Rpc), ("CUDA0", Kind::Gpu)]);
        assert_eq!(Placement::choose(&all, None).unwrap(), Placement { holders: vec![3, 1], order: vec![3, 1] });
        let both = candidates(&[("GPU1", Kind::IntegratedGpu), ("CUDA0", Kind::Gpu), ("CPU", Kind::Cpu)]);
        assert_eq!(Placement::choose(&both, None).unwrap().holders, [1, 2]);
        let integrated = candidates(&[("RPC0", Kind::Rpc), ("GPU1", Kind::IntegratedGpu), ("CPU", Kind::Cpu)]);
        assert_eq!(Placement::choose(&integrated, None).unwrap().holders, [1, 2]);
        let found = Placement::choose(&all[..3], None).unwrap();
        assert_eq!(found, Placement { holders: vec![2, 1], order: vec![2, 1] });
        let found = Placement::choose(&all[..2], None).unwrap();
        assert_eq!(found, Placement { holders: vec![1], order: vec![1] });
    }

    #[test]
    fn placement_orders_the_cpu_last_for_the_scheduler() {
        let all = candidates(&[("CPU", Kind::Cpu), ("RPC0", Kind::Rpc)]);
        let found = choose(&all, &["cpu", " RPC0"]).unwrap();
        assert_eq!(found, Placement { holders: vec![0, 1], order: vec![1, 0] });
        assert_eq!(found.of_layers().collect::<Vec<_>>(), [0, 1, 0, 1]);
        let found = choose(&all, &["RPC0"]).unwrap();
        assert_eq!(found, Placement { holders: vec![1], order: vec![1, 0] });
        assert_eq!(found.of_layers().collect::<Vec<_>>(), [1, 1, 1, 1]);
    }

    #[test]
    fn placement_gives_a_device_named_twice_twice_as_many_layers() {
        let all = candidates(&[("CPU", Kind::Cpu), ("RPC0", Kind::Rpc)]);
        let found = choose(&all, &["RPC0", "RPC0", "CPU"]).unwrap();
        assert_eq!(found, Placement { holders: vec![1, 1, 0], order: vec![1, 0] });
        assert_eq!(found.of_layers().collect::<Vec<_>>(), [1, 1, 0, 1]);
        assert_eq!(choose(&all, &["CPU", "CPU"]).unwrap(), Placement { holders: vec![0, 0], order: vec![0] });
    }

    #[test]
    fn placement_errors_name_the_devices() {
        let all = candidates(&[("CPU", Kind::Cpu), ("RPC0", Kind::Rpc)]);
        let text = |names: &[&str]| choose(&all, names).unwrap_err().to_string();
        assert_eq!(text(&["CPU", "CUDA7"]), "there is no device `CUDA7`; --devices takes CPU, RPC0");
        assert_eq!(text(&[""]), "there is no device ``; --devices takes CPU, RPC0");
        assert_eq!(text(&[]), "--devices names no device");
        let many = text(&["CPU"; 5]);
        assert_eq!(many, "--devices names 5 devices, but there are only 4 layers to share out");
        assert!(Placement::choose(&candidates(&[("RPC0", Kind::Rpc)]), None).is_err());
    }
}
