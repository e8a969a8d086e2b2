"""A pipeline of Kubeflow Pipelines 2 whose step runs a sweep through Atoll and waits for it."""

from kfp import compiler, dsl


@dsl.component(base_image="python:3.12", packages_to_install=["atoll[client]"])
def sweep(image: str, seeds: int, at_once: int) -> int:
    """Run an index for each seed; how many succeeded."""
    from atoll.client import Client, Job, State

    # The account of the pod is the login.
    with Client() as atoll:
        job = Job(command=["python", "train.py", "--seed"], image=image, gpus=1, queue="research")
        ends = list(atoll.map(job, range(seeds), at_once=at_once))
    return sum(end is State.SUCCEEDED for end in ends)


@dsl.pipeline(name="seeds")
def seeds(image: str = "train:7"):
    """One sweep."""
    sweep(image=image, seeds=200, at_once=20)


if __name__ == "__main__":
    compiler.Compiler().compile(seeds, "seeds.yaml")
