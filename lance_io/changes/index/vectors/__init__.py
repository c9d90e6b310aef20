"""Plans that build IVF indices.

vector_request.py   arguments of a build, checked as pylance does
vector_settings.py  the values that these arguments have
sample_vectors.py   random vectors of a column
train_model.py      sample -> centroids and codes
stored_models.py    the model of a segment that exists
copied_rows.py      rows of segments that exist, copied into a new one
"""
