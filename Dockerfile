# docker build --target cpu -t trans-encoder .        (default: cpu)
# docker build --target cuda -t trans-encoder:cuda .
# docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" trans-encoder train --pairs pairs.jsonl --model MODEL --out runs/mine
# docker run --rm -p 8000:8000 -e TRANS_ENCODER_TOKEN -v "$PWD:/work:ro" trans-encoder serve tickets.index --host 0.0.0.0
FROM python:3.12-slim AS wheel
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE constraints.txt ./
COPY src src
RUN pip install --no-cache-dir --constraint constraints.txt build && python -m build --wheel --outdir /dist

FROM python:3.12-slim AS cuda
COPY constraints.txt /tmp/
COPY --from=wheel /dist /dist
RUN pip install --no-cache-dir torch==2.13.0 \
    && pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /dist/*.whl)[hub,mining,report,onnx,serve]" \
    && rm -r /dist /tmp/constraints.txt && useradd --uid 1000 --create-home user \
    && mkdir /work && chown user /work
# Any user may run it (--user), so what is written beside /work goes where all can write.
ENV HOME=/tmp USER=user HF_HOME=/tmp/huggingface TRANS_ENCODER_CACHE=/tmp/trans-encoder
USER 1000
WORKDIR /work
ENTRYPOINT ["trans-encoder"]

FROM python:3.12-slim AS cpu
COPY constraints.txt /tmp/
COPY --from=wheel /dist /dist
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch==2.13.0 \
    && pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /dist/*.whl)[hub,mining,report,onnx,serve]" \
    && rm -r /dist /tmp/constraints.txt && useradd --uid 1000 --create-home user \
    && mkdir /work && chown user /work
# Any user may run it (--user), so what is written beside /work goes where all can write.
ENV HOME=/tmp USER=user HF_HOME=/tmp/huggingface TRANS_ENCODER_CACHE=/tmp/trans-encoder
USER 1000
WORKDIR /work
ENTRYPOINT ["trans-encoder"]
