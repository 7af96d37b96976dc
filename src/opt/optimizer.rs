//! The optimisers and their parameters.

use super::dataset::call;
use crate::error::{Error, Result};
use crate::options::options;

/// An optimiser and its parameters (`ggml_opt_optimizer_type`, `ggml_opt_optimizer_params`).
///
#[doc = include_str!("line.txt")]
/// let sgd = Optimizer::from(Sgd::new().with_alpha(0.5));
/// let mut opt = OptContext::new([a, b], params.with_optimizer(sgd))?;
/// opt.set_optimizer(Sgd::new().with_alpha(0.1))?; // from the next step on
/// assert_eq!((opt.optimizer().name(), Optimizer::default().name()), ("sgd", "adamw"));
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_opt_optimizer_type")]
#[doc(alias = "ggml_opt_optimizer_params")]
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Optimizer {
    /// Adam with decoupled weight decay.
    AdamW(AdamW),
    /// Stochastic gradient descent.
    Sgd(Sgd),
}

options! {
    /// Adam with decoupled weight decay (`ggml_opt_step_adamw`).
    ///
    /// ```
    /// use ggml::opt::AdamW;
    /// let how = AdamW::new().with_alpha(0.01).with_wd(0.1);
    /// assert_eq!(how.alpha, 0.01);
    /// ```
    #[doc(alias = "ggml_opt_step_adamw")]
    #[doc(alias = "ggml_opt_get_default_optimizer_params")]
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct AdamW {
        /// ggml's default values for `AdamW`.
        new();
        /// Sets the learning rate, above 0.
        with_alpha(alpha: f32 = 1e-3);
        /// Sets the decay of the mean of gradients, at least 0 and below 1.
        with_beta1(beta1: f32 = 0.9);
        /// Sets the decay of the mean of squared gradients, at least 0 and below 1.
        with_beta2(beta2: f32 = 0.999);
        /// Sets what is added to the denominator of the step, at least 0. With 0, a parameter whose gradients were all 0
        /// becomes NaN.
        with_eps(eps: f32 = 1e-8);
        /// Sets the weight decay, 0 to 1.
        with_wd(wd: f32 = 0.0);
    }
}

options! {
    /// Stochastic gradient descent (`ggml_opt_step_sgd`).
    ///
    /// ```
    /// use ggml::opt::Sgd;
    /// let how = Sgd::new().with_alpha(0.01);
    /// assert_eq!(how.wd, 0.0);
    /// ```
    #[doc(alias = "ggml_opt_step_sgd")]
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct Sgd {
        /// ggml's default values for stochastic gradient descent.
        new();
        /// Sets the learning rate, above 0.
        with_alpha(alpha: f32 = 1e-3);
        /// Sets the weight decay, 0 to 1.
        with_wd(wd: f32 = 0.0);
    }
}

/// ggml's default optimiser: [`AdamW`].
impl Default for Optimizer {
    fn default() -> Self {
        Self::AdamW(AdamW::new())
    }
}

impl From<AdamW> for Optimizer {
    fn from(how: AdamW) -> Self {
        Self::AdamW(how)
    }
}

impl From<Sgd> for Optimizer {
    fn from(how: Sgd) -> Self {
        Self::Sgd(how)
    }
}

impl Optimizer {
    /// ggml's name of the optimiser (`ggml_opt_optimizer_name`).
    #[doc(alias = "ggml_opt_optimizer_name")]
    pub fn name(self) -> &'static str {
        match self {
            Self::AdamW(_) => "adamw",
            Self::Sgd(_) => "sgd",
        }
    }

    /// Fails if a parameter of the optimiser is out of range.
    pub(super) fn check(self) -> Result<()> {
        const RATE: &str = "it must be above 0 and finite";
        const UNIT: &str = "it must lie in 0 to 1";
        const BETA: &str = "it must be at least 0 and below 1";
        let unit = 0.0..=1.0;
        let beta = 0.0..1.0;
        match self {
            Self::AdamW(AdamW { alpha, beta1, beta2, eps, wd }) => {
                let call = call("AdamW");
                call.param(positive(alpha), "alpha", alpha, RATE)?;
                call.param(beta.contains(&beta1), "beta1", beta1, BETA)?;
                call.param(beta.contains(&beta2), "beta2", beta2, BETA)?;
                call.param(eps >= 0.0 && eps.is_finite(), "eps", eps, "it must be at least 0 and finite")?;
                call.param(unit.contains(&wd), "wd", wd, UNIT)
            }
            Self::Sgd(Sgd { alpha, wd }) => {
                let call = call("Sgd");
                call.param(positive(alpha), "alpha", alpha, RATE)?;
                call.param(unit.contains(&wd), "wd", wd, UNIT)
            }
        }
    }

    /// Replaces the optimiser's parameters. The type of optimiser must stay the same, because its steps are part of a
    /// graph.
    pub(super) fn replace(&mut self, new: Self) -> Result<()> {
        new.check()?;
        if std::mem::discriminant(&new) != std::mem::discriminant(self) {
            return Err(Error::param(
                "OptContext::set_optimizer",
                "optimizer",
                format!("{new:?}"),
                "a context can't change its type of optimiser; make a new context",
            ));
        }
        *self = new;
        Ok(())
    }

    /// The number of values that [`Optimizer::values`] returns.
    pub(super) fn n_values(self) -> i64 {
        match self {
            Self::AdamW(_) => 7,
            Self::Sgd(_) => 2,
        }
    }

    /// The values that the kernels read for a step, by the number of the step, counted from 1.
    pub(super) fn values(self, step: u32) -> Vec<f32> {
        match self {
            Self::AdamW(AdamW { alpha, beta1, beta2, eps, wd }) => {
                vec![alpha, beta1, beta2, eps, wd, unbias(beta1, step), unbias(beta2, step)]
            }
            Self::Sgd(Sgd { alpha, wd }) => vec![alpha, wd],
        }
    }
}

/// The factor that corrects the bias of a running mean that started at 0, after `steps` steps.
fn unbias(beta: f32, steps: u32) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "the kernel takes an f32; the value lies between 1 and 2^24")]
    let factor = (1.0 / (1.0 - f64::from(beta).powf(f64::from(steps)))) as f32;
    factor
}

fn positive(x: f32) -> bool {
    x > 0.0 && x.is_finite()
}
