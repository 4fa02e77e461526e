"""What is deployed is right by its own linters, and the script for SLURM gives way and comes again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

import regard

DEPLOY = Path(regard.__file__).parent.parent / "deploy"
TOOLS = Path(sys.executable).parent
KUBERNETES = "1.33"  # the oldest that is supported when this is written


def lint(tool: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(TOOLS / tool), *words], capture_output=True, text=True)


def test_the_script_for_slurm_is_clean_by_shellcheck(tmp_path: Path) -> None:
    done = lint("shellcheck", "--severity=style", str(DEPLOY / "slurm.sh"))
    assert done.returncode == 0, done.stdout
    (tmp_path / "wrong.sh").write_text("#!/bin/bash\nrm $1/*\n")
    assert lint("shellcheck", str(tmp_path / "wrong.sh")).returncode == 1  # it sees something


def test_the_job_for_kubernetes_is_clean_by_yamllint_and_by_the_schemas(tmp_path: Path) -> None:
    manifest = DEPLOY / "kubernetes.yaml"
    done = lint("yamllint", "--strict", "-c", str(DEPLOY / ".yamllint"), str(manifest))
    assert done.returncode == 0, done.stdout
    done = lint("kubernetes-validate", "--strict", "-k", KUBERNETES, str(manifest))
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(manifest.read_text().replace("completionMode:", "completeMode:"))
    assert lint("kubernetes-validate", "--strict", "-k", KUBERNETES, str(wrong)).returncode != 0


def test_the_pods_of_the_job_find_each_other() -> None:
    """What no schema knows: names that must be the same in several places."""
    claim, service, job = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    name, spec = job["metadata"]["name"], job["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    values = {each["name"]: each["value"] for each in container["env"]}
    words = container["command"]
    assert (
        spec["completionMode"] == "Indexed" and str(spec["completions"]) == str(spec["parallelism"]) == values["PODS"]
    )
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"] == {"job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"]
    port = service["spec"]["ports"][0]["port"]
    assert f"--rdzv-endpoint={name}-0.{pod['subdomain']}:{port}" in words
    assert container["ports"][0]["containerPort"] == port
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert {f"$({each})" for each in ("PODS", "PROCESSES")} <= {word.partition("=")[2] for word in words}


# --- SLURM, whose two commands are stood in for by scripts: there is no cluster here


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, str]:
    """A folder with an srun that only runs what it is given, a scontrol that notes what it is told, and a python that
    notes its words and saves when it is told to end."""
    scripts = {
        "srun": 'shift\nexec "$@"',  # its own option goes
        "scontrol": f'echo "$@" >> {tmp_path}/told\nif [ "$1" = show ]; then echo node7; fi',
        "python": f"""echo "$OMP_NUM_THREADS $*" >> {tmp_path}/words
trap 'echo saved >> {tmp_path}/words; exit 143' TERM
[ -e {tmp_path}/quick ] && exit 3
touch {tmp_path}/ready
for _ in $(seq 600); do sleep 0.05; done""",
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {
        "JOB_ID": "1234567",
        "JOB_NODELIST": "node[7-8]",
        "JOB_NUM_NODES": "2",
        "CPUS_PER_TASK": "12",
        "GPUS_ON_NODE": "4",
    }
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}", **{f"SLURM_{name}": value for name, value in slurm.items()}}


WORDS = ["translate", "big file.txt", "-o", "out.txt"]


def test_a_job_that_must_make_room_has_its_processes_save_and_goes_back_into_the_queue(
    cluster: dict[str, str], tmp_path: Path
) -> None:
    job = subprocess.Popen(["bash", str(DEPLOY / "slurm.sh"), *WORDS], env=cluster, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "ready").exists():
        assert job.poll() is None
        time.sleep(0.02)
    job.send_signal(signal.SIGUSR1)
    assert "goes back into the queue" in job.communicate(timeout=60)[1] and job.returncode == 0
    started, saved = (tmp_path / "words").read_text().splitlines()
    assert saved == "saved"
    assert started.startswith("3 -m torch.distributed.run --nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d ")
    assert "--rdzv-endpoint=node7:34567 --rdzv-id=1234567-0 -m regard translate big file.txt -o out.txt" in started
    assert (tmp_path / "told").read_text().splitlines() == ["show hostnames node[7-8]", "requeue 1234567"]


def test_a_job_that_fails_fails_and_is_not_begun_again(cluster: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "quick").touch()
    done = subprocess.run(["bash", str(DEPLOY / "slurm.sh"), *WORDS], env=cluster, capture_output=True, text=True)
    assert done.returncode == 3 and "requeue" not in (tmp_path / "told").read_text()
    nothing = subprocess.run(["bash", str(DEPLOY / "slurm.sh")], env=cluster, capture_output=True, text=True)
    assert nothing.returncode == 2 and "name what Regard is to do" in nothing.stderr


def test_what_the_image_copies_is_there() -> None:
    copied = [
        line.split()[1:-1] for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line.startswith("COPY")
    ]
    assert copied and all((DEPLOY.parent / name).exists() for names in copied for name in names)
