"""Hardware cost model: profiles (data with sources), workloads (sizes), and a roofline that predicts time and memory.

    profile = load_profile("gp7000")
    workload = workload_from_dims(num_layers=32, hidden_size=4096, ...)
    predict(profile, workload, batch=8, input_len=2048, output_len=256, devices=1).tpot

Files: `quantity` (values with units and sources), `profile` (TOML), `workload` (model and cache as sizes), `device` (a
profile's effective rates), `roofline` (times), `capacity` (bytes and batches), `outcome` (one case, compiled), `notes`
(what a prediction rests on), `predict` (the public function).
"""

from kvjax.hardware.predict import Prediction, predict
from kvjax.hardware.profile import Profile, ProfileListing, list_profiles, load_profile
from kvjax.hardware.quantity import Quantity
from kvjax.hardware.roofline import BOUNDS, Times
from kvjax.hardware.workload import KVFormat, LayerLoad, Workload, dense_kv, workload_from_dims

__all__ = [
    "BOUNDS",
    "KVFormat",
    "LayerLoad",
    "Prediction",
    "Profile",
    "ProfileListing",
    "Quantity",
    "Times",
    "Workload",
    "dense_kv",
    "list_profiles",
    "load_profile",
    "predict",
    "workload_from_dims",
]
