# docker build --target cpu -t trans-encoder .        (default: cpu)
# docker build --target cuda -t trans-encoder:cuda .
# docker run --rm -v "$PWD:/work" trans-encoder train --pairs pairs.jsonl --model MODEL --out runs/mine
FROM python:3.12-slim AS wheel
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /dist

FROM python:3.12-slim AS cuda
COPY constraints.txt /tmp/
COPY --from=wheel /dist /dist
RUN pip install --no-cache-dir torch==2.13.0 \
    && pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /dist/*.whl)[hub,mining,report,onnx]" \
    && rm -r /dist /tmp/constraints.txt && useradd --create-home user
USER user
WORKDIR /work
ENTRYPOINT ["trans-encoder"]

FROM python:3.12-slim AS cpu
COPY constraints.txt /tmp/
COPY --from=wheel /dist /dist
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch==2.13.0 \
    && pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /dist/*.whl)[hub,mining,report,onnx]" \
    && rm -r /dist /tmp/constraints.txt && useradd --create-home user
USER user
WORKDIR /work
ENTRYPOINT ["trans-encoder"]
