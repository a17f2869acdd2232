//! `cargo xtask sim`: the simulator, for longer than continuous integration runs it, or one seed again.

use crate::{
    Command, Failure,
    args::Args,
    run::{self, cargo},
};

pub(crate) const COMMAND: Command = Command {
    name: "sim",
    arguments: "[options]",
    about: "Simulate deployments for as long as one likes, or one seed again.",
    help: "Without options: 50,000 runs, each of the scenario that its seed picks. A failure prints the seed, the command that\n\
           replays it, and the smallest schedule that still fails.\n\n  \
           --for 1h           run so long (s, m, h)\n  \
           --runs N           run so many\n  \
           --first N          begin with this seed\n  \
           --scenario NAME    this scenario only; a wrong name lists them\n  \
           --seed N           this seed only: what it breaks, shrunk\n  \
           --transcript       with --seed: everything that happened\n  \
           --mutant NAME      with a fault of design switched on; a wrong name lists them\n  \
           --model            the exhaustive models, to greater depth than in the tests",
    run: sim,
};

fn sim(mut args: Args) -> Result<(), Failure> {
    let models = args.flag("--model");
    let given = args.everything();
    args.finish()?;
    if models {
        let mut command = cargo(&["test", "--locked", "-p", "leasehold-testkit", "--test", "model", "--"]);
        return run::run(
            command.args(["--nocapture", "--test-threads", "1"]).env("LEASEHOLD_MODEL_DEEP", "1"),
        );
    }
    let mut command = cargo(&["run", "--locked", "-p", "leasehold-testkit", "--example", "sim", "--"]);
    run::run(command.args(given))
}
