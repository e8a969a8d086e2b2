"""Frameworks as their users run them: what the plug-ins of a Job promise is there in the containers."""

from __future__ import annotations

import asyncio

import pytest

from atoll.local.realnodes.images import BUSYBOX
from tests.e2e.jobs import PATIENCE, job, part_of_node, shell, task
from tests.integration.federation import Site

MPI = "atoll.local/mpi:1"
PI = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
n, rank, size = 200000, comm.rank, comm.size
part = sum(4.0 / (1.0 + ((i + 0.5) / n) ** 2) for i in range(rank, n, size)) / n
pi = comm.reduce(part, op=MPI.SUM, root=0)
names = comm.gather(MPI.Get_processor_name(), root=0)
if rank == 0:
    assert size == 4 and len(set(names)) == 4, (size, names)
    assert abs(pi - 3.141592653589793) < 1e-6, pi
    print("pi is", round(pi, 6), "by", ",".join(sorted(names)))
"""
# A Secret is mounted as a folder that anybody may write to, which sshd would refuse keys in.
SSHD = "mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -o StrictModes=no"


def mpi_job(name: str, *, spread: bool) -> dict:
    launch = (
        f"echo '{PI}' > /tmp/pi.py; for h in $(echo $MPI_HOST | tr , ' '); do scp -q /tmp/pi.py $h:/tmp/; done; "
        "mpirun --allow-run-as-root --oversubscribe --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 "
        "-host $MPI_HOST -np 4 python3 /tmp/pi.py"
    )
    # Three of them fill a node.
    cpu = part_of_node(0.26) if spread else 20
    workers = task("worker", shell(SSHD, image=MPI, memory="256Mi", cpu=cpu), replicas=4)
    master = task("master", shell(launch, image=MPI, memory="256Mi"))
    master["policies"] = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    return job(name, master, workers, plugins={"mpi": [], "ssh": [], "svc": []}, maxRetry=1)


@pytest.mark.parametrize("spread", [False, True], ids=["wherever there is room", "workers spread over two nodes"])
async def test_mpirun_computes_pi_on_four_workers_over_ssh(site: Site, spread: bool) -> None:
    await site.only("east")
    await site.submit(mpi_job("pi", spread=spread))
    await site.phase("pi", "Running", deadline=PATIENCE)
    if spread:
        workers = [each for each in await site.pods("east") if "-worker-" in each["metadata"]["name"]]
        assert {each["spec"]["nodeName"] for each in workers} == {"east-real0", "east-real1"}
    await site.phase("pi", "Completed", deadline=PATIENCE)
    said = await asyncio.to_thread(site.kubectl, "logs", "pi-master-0", "-n", site.namespace, cluster="east")
    assert "pi is 3.141593 by pi-worker-0,pi-worker-1,pi-worker-2,pi-worker-3" in said


TF = """
import json, os, socket
config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]
assert {k: len(v) for k, v in config["cluster"].items()} == {"ps": 1, "worker": 2}, config
mine = config["cluster"][role][index].partition(":")[0]
assert mine.split(".")[0] == socket.gethostname(), (mine, socket.gethostname())
import time
for each in sum(config["cluster"].values(), []):
    for _ in range(200):
        try:
            socket.getaddrinfo(*each.split(":")); break
        except OSError:
            time.sleep(0.1)
    else:
        raise SystemExit(each)
"""


async def test_a_script_finds_itself_and_its_peers_in_tf_config(site: Site) -> None:
    await site.only("west")
    script = f"echo '{TF}' > /tmp/t.py; exec python3 /tmp/t.py; sleep 3"
    roles = [task("ps", shell(script, image=MPI)), task("worker", shell(script, image=MPI), replicas=2)]
    await site.submit(job("tf", *roles, plugins={"tensorflow": [], "svc": []}, maxRetry=1))
    done = await site.phase("tf", "Completed", deadline=PATIENCE)
    assert done["status"]["succeeded"] == 3


TORCH = """
import os, socket, struct, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
assert size == 3 and os.environ["PET_NNODES"] == "3" and int(os.environ["PET_NODE_RANK"]) == rank
if rank == 0:
    # The master adds up what each rank sends, as an all-reduce would.
    server = socket.create_server(("", address[1]))
    peers = [server.accept()[0] for _ in range(size - 1)]
    total = sum(struct.unpack("!i", peer.recv(4))[0] for peer in peers)
    for peer in peers:
        peer.sendall(struct.pack("!i", total))
else:
    for _ in range(300):
        try:
            peer = socket.create_connection(address, 2); break
        except OSError:
            time.sleep(0.1)
    peer.sendall(struct.pack("!i", rank))
    total = struct.unpack("!i", peer.recv(4))[0]
assert total == 3, total
"""


async def test_ranks_meet_by_what_the_pytorch_plugin_tells_them(site: Site) -> None:
    await site.only("east")
    script = f"echo '{TORCH}' > /tmp/t.py; exec python3 /tmp/t.py"
    tasks = [task("master", shell(script, image=MPI)), task("worker", shell(script, image=MPI), replicas=2)]
    await site.submit(job("torch", *tasks, plugins={"pytorch": [], "svc": []}, maxRetry=1))
    done = await site.phase("torch", "Completed", deadline=PATIENCE)
    assert done["status"]["succeeded"] == 3


async def test_workers_of_pytorch_wait_for_their_master_where_the_job_says_so(site: Site) -> None:
    await site.only("east")
    master = "mkdir /srv; sleep 6; echo up > /srv/ready; exec httpd -f -p 23456 -h /srv"
    # It asks once.
    worker = "test $(wget -q -O- http://$MASTER_ADDR:$MASTER_PORT/ready) = up"
    tasks = [task("master", shell(master)), task("worker", shell(worker), replicas=2)]
    tasks[1]["policies"] = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    wishes = ["--wait-master-enabled=true", f"--wait-master-image={BUSYBOX}"]
    await site.submit(job("late", *tasks, plugins={"pytorch": wishes, "svc": []}, maxRetry=1))
    await site.phase("late", "Completed", deadline=PATIENCE)
