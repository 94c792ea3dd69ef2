"""Stage 0: from a PLM and raw text to a first bi-encoder, by contrastive tuning (section 2.1)."""

from trans_encoder.distill.bootstrap.plan import ContrastPlan, ObjectiveName, make_plan
from trans_encoder.distill.bootstrap.stage import Bootstrap, bootstrap
from trans_encoder.distill.bootstrap.tuning import tune
