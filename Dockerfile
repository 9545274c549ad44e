# The demo in a container: it trains PPO on CartPole, evaluates it, and writes demo.gif and the run to /out.
#
#     docker build --tag rl_training .
#     mkdir -p out && docker run --rm --user "$(id -u)" --volume "$PWD/out:/out" rl_training
#
# Any other command: docker run ... rl_training rl-training train ppo/lunarlander
FROM python:3.11-slim

# g++ compiles gradient steps. Without it training works too, but slower.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /app

# PyTorch's index of CPU builds: PyPI's torch for Linux brings gigabytes of CUDA libraries. For a GPU, build with
# --build-arg TORCH_INDEX=https://pypi.org/simple, run with --gpus all, and train with --set device=cuda.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# The dependencies are a layer of their own, which a change of the code does not build again.
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src/rl_training/_version.py src/rl_training/_version.py
RUN touch src/rl_training/__init__.py \
    && pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" --constraint constraints.txt ".[video,box2d]" \
    && pip uninstall --yes rl_training

COPY src src
RUN pip install --no-cache-dir --no-deps .

# Not root: what a run writes belongs to an ordinary user. HOME and USER make any `--user` work: torch keeps compiled
# code in a folder that it names after them.
ENV HOME=/tmp USER=trainer
RUN useradd --no-create-home --uid 1000 trainer && mkdir /out && chown trainer /out
USER trainer
WORKDIR /out

CMD ["sh", "-c", "rl-training train ppo/cartpole && rl-training eval latest --episodes 20 && rl-training play latest --gif demo.gif"]
