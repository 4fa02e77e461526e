#!/usr/bin/env bash
# Regard on a SLURM cluster: one torchrun a node, one process a GPU (or as many as REGARD_PROCESSES, where there is none).
#
#   sbatch deploy/slurm.sh train config.toml --out runs/big --go-on       a training over all nodes
#   sbatch --nodes=2 deploy/slurm.sh translate big.txt -o out.txt         batch work in shards
#   sbatch deploy/slurm.sh doctor --world                                 who is there, and how fast sums pass
#
# The folder in which it is submitted must be one that all nodes see. Five minutes before its time ends, or when it gives
# way to another job, the processes are told to save and end, and the job goes back into the queue. When it comes again the
# same words go on: batch work with the shards that are finished, a training by --go-on with its last checkpoint.

#SBATCH --job-name=regard
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@300
#SBATCH --output=regard-%j.log
# On a cluster with GPUs, add to the line of sbatch: --gpus-per-node=8

set -euo pipefail

python="${REGARD_PYTHON:-python}" # of the environment in which Regard is installed
per_node="${SLURM_GPUS_ON_NODE:-${REGARD_PROCESSES:-1}}"
port="${REGARD_PORT:-$((20000 + ${SLURM_JOB_ID:?this is for sbatch} % 20000))}" # two jobs on one node do not meet
first="$(scontrol show hostnames "${SLURM_JOB_NODELIST:?}" | head -n 1)"

if [[ $# -eq 0 ]]; then
  echo "name what Regard is to do: sbatch deploy/slurm.sh train config.toml --out runs/big --go-on" >&2
  exit 2
fi

threads=$((${SLURM_CPUS_PER_TASK:-1} / per_node))
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}"

step="" again=0
# shellcheck disable=SC2329 # the trap calls it
give_way() {
  again=1
  echo "told to make room: the processes save and end, and the job goes back into the queue" >&2
  [[ -z "$step" ]] || kill -TERM "$step" 2>/dev/null || true # srun hands it to every torchrun, and these to their processes
}
trap give_way USR1 TERM

srun --kill-on-bad-exit=1 "$python" -m torch.distributed.run \
  --nnodes="${SLURM_JOB_NUM_NODES:?}" --nproc-per-node="$per_node" \
  --rdzv-backend=c10d --rdzv-endpoint="$first:$port" --rdzv-id="$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}" \
  -m regard "$@" &
step=$!

code=0
wait "$step" || code=$?
while kill -0 "$step" 2>/dev/null; do # a signal ends a wait before the processes have saved
  code=0
  wait "$step" || code=$?
done
if [[ $again -eq 1 ]]; then
  scontrol requeue "$SLURM_JOB_ID"
  exit 0
fi
exit "$code"
